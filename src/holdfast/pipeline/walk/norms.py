"""Steps of a walk on a GPU that need no compiler: group norm with the SiLU behind it in two kernels each way.

Most of a decoder's time apart from its convolutions is bytes moved by norms, activations, biases and casts.
``FastSteps`` is a context in which torch calls the kernels below, casts weights once, leaves the bias of a convolution
to the norm or the sum that reads it, and leaves out what changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch.nn import functional
from torch.overrides import TorchFunctionMode

TILE = 4096  # values that a program holds at a time
STEPS = 32  # tiles that a program adds up


@triton.jit  # type: ignore[untyped-decorator]
def _slope(value, slope, scale, shift, silu: tl.constexpr):  # type: ignore[no-untyped-def]
    if silu:
        normed = value * scale[None, :] + shift[None, :]
        gate = 1 / (1 + tl.exp(-normed))
        slope = slope * gate * (1 + normed * (1 - gate))
    return slope


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def]
    images, slopes, centre, scale, shift, sums, pixels, channels,
    back: tl.constexpr, silu: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr, steps: tl.constexpr,
):  # fmt: skip
    """Add up, per channel, distances from a centre and their squares; back: slopes, and slopes times distances."""
    image, chunk, chunks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, columns)
    inside = column < channels
    middle = tl.load(centre + image * channels + column, mask=inside, other=0.0)
    factor = tl.load(scale + image * channels + column, mask=inside, other=0.0)
    offset = tl.load(shift + image * channels + column, mask=inside, other=0.0)
    first = tl.zeros((rows, columns), tl.float32)
    second = tl.zeros((rows, columns), tl.float32)
    for step in range(steps):
        row = (chunk * steps + step) * rows + tl.arange(0, rows)
        here = (row < pixels)[:, None] & inside[None, :]
        place = (image * pixels + row)[:, None] * channels + column[None, :]
        value = tl.load(images + place, mask=here, other=0.0).to(tl.float32)
        apart = tl.where(here, value - middle[None, :], 0.0)
        if back:
            slope = tl.load(slopes + place, mask=here, other=0.0).to(tl.float32)
            slope = _slope(value, slope, factor, offset, silu)
            first += slope
            second += slope * apart
        else:
            first += apart
            second += apart * apart
    target = sums + (image * chunks + chunk) * 2 * channels + column
    tl.store(target, tl.sum(first, 0), mask=inside)
    tl.store(target + channels, tl.sum(second, 0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _values(  # type: ignore[no-untyped-def]
    images, slopes, centre, scale, shift, factor, constant, out, pixels, channels,
    back: tl.constexpr, silu: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Write images × scale + shift (with SiLU); back: slopes × scale + (images − centre) × factor + constant."""
    image, column = tl.program_id(0).to(tl.int64), tl.arange(0, columns)
    row = tl.program_id(1) * rows + tl.arange(0, rows)
    inside = column < channels
    here = (row < pixels)[:, None] & inside[None, :]
    place = (image * pixels + row)[:, None] * channels + column[None, :]
    value = tl.load(images + place, mask=here, other=0.0).to(tl.float32)
    of_channel = image * channels + column
    scaled = tl.load(scale + of_channel, mask=inside, other=0.0)
    moved = tl.load(shift + of_channel, mask=inside, other=0.0)
    if back:
        slope = tl.load(slopes + place, mask=here, other=0.0).to(tl.float32)
        slope = _slope(value, slope, scaled, moved, silu)
        middle = tl.load(centre + of_channel, mask=inside, other=0.0)
        along = tl.load(factor + of_channel, mask=inside, other=0.0)
        rest = tl.load(constant + of_channel, mask=inside, other=0.0)
        answer = slope * scaled[None, :] + (value - middle[None, :]) * along[None, :] + rest[None, :]
    else:
        answer = value * scaled[None, :] + moved[None, :]
        if silu:
            answer = answer / (1 + tl.exp(-answer))
    tl.store(out + place, answer.to(out.dtype.element_ty), mask=here)


def _laid_out(images: torch.Tensor) -> torch.Tensor:
    """Return the images with the channels of a pixel side by side."""
    return images.movedim(1, -1).contiguous().movedim(-1, 1)


def _shape(images: torch.Tensor) -> tuple[int, int, int, int, int]:
    """Return images, pixels and channels, and the rows and columns of a tile."""
    count, channels = images.shape[:2]
    columns = triton.next_power_of_2(channels)
    return count, images[0, 0].numel(), channels, max(1, TILE // columns), columns


def _totals(images: torch.Tensor, slopes: torch.Tensor, *of_channel: torch.Tensor, **flags: bool) -> torch.Tensor:
    count, pixels, channels, rows, columns = _shape(images)
    chunks = triton.cdiv(pixels, rows * STEPS)
    sums = torch.empty(count, chunks, 2, channels, device=images.device)
    _sums[count, chunks](
        images, slopes, *of_channel, sums, pixels, channels, **flags, rows=rows, columns=columns, steps=STEPS
    )
    return sums.sum(1)


class NormedSilu(torch.autograd.Function):
    """Group norm of images plus ``added`` per channel, with or without SiLU behind it.

    Gradients reach the images only.
    """

    @staticmethod
    def forward(
        ctx: Any, images: torch.Tensor, groups: int, weight: Any, bias: Any, eps: float, silu: bool, added: Any = 0.0
    ) -> torch.Tensor:
        """Return the normed images, in the layout of ``_laid_out``."""
        images = _laid_out(images)
        count, pixels, channels, rows, columns = _shape(images)
        centre = images.flatten(2)[:, :, 0].float().contiguous()  # any value of the channel keeps sums small
        sums = _totals(images, images, centre, centre, centre, back=False, silu=False) / pixels
        means = (centre + sums[:, 0] + added).view(count, groups, -1)
        within = (sums[:, 1] - sums[:, 0].square()).view(count, groups, -1).mean(2) + means.var(2, correction=0)
        inverse = (within + eps).rsqrt().repeat_interleave(channels // groups, 1)
        mean = means.mean(2).repeat_interleave(channels // groups, 1) - added
        scale = inverse * weight
        shift = bias - mean * scale
        out = torch.empty_like(images)
        _values[count, triton.cdiv(pixels, rows)](
            images, images, mean, scale, shift, scale, scale, out, pixels, channels,
            back=False, silu=silu, rows=rows, columns=columns,
        )  # fmt: skip
        ctx.save_for_backward(images, mean, inverse, scale, shift, weight)
        ctx.groups, ctx.silu = groups, silu
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """Return the gradient of the images."""
        images, mean, inverse, scale, shift, weight = ctx.saved_tensors
        slope = _laid_out(slopes[0])
        count, pixels, channels, rows, columns = _shape(images)
        sums = _totals(images, slope, mean, scale, shift, back=True, silu=ctx.silu)
        several = channels // ctx.groups
        along, across = (sums * weight).view(count, 2, ctx.groups, several).mean(3).unbind(1)  # per channel
        constant = -inverse * along.repeat_interleave(several, 1) / pixels
        factor = -(inverse**3) * across.repeat_interleave(several, 1) / pixels
        out = torch.empty_like(images)
        _values[count, triton.cdiv(pixels, rows)](
            images, slope, mean, scale, shift, factor, constant, out, pixels, channels,
            back=True, silu=ctx.silu, rows=rows, columns=columns,
        )  # fmt: skip
        return out, None, None, None, None, None, None, None


class Scaled(torch.autograd.Function):
    """Images × scale (None: 1) + shift, both per channel, perhaps plus other images; gradients reach images only."""

    @staticmethod
    def forward(
        ctx: Any, images: torch.Tensor, scale: torch.Tensor | None, shift: torch.Tensor, others: Any = None
    ) -> torch.Tensor:
        """Return the sum, in the layout of ``_laid_out``."""
        ctx.scale, ctx.several = scale, others is not None
        return _scaled(images, torch.ones_like(shift) if scale is None else scale, shift, others)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """Return the gradient, scaled, and for the others as it came."""
        scale, (slope,) = ctx.scale, slopes
        scaled = slope if scale is None else _scaled(slope, scale, torch.zeros_like(scale))
        return scaled, None, None, slope if ctx.several else None


def _scaled(images: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, others: Any = None) -> torch.Tensor:
    images = _laid_out(images)
    count, pixels, channels, rows, columns = _shape(images)
    second, out = images if others is None else _laid_out(others), torch.empty_like(images)
    factor, offset = (number.float().expand(count, -1).contiguous() for number in (scale, shift))
    ones, zeros = torch.ones_like(offset), torch.zeros_like(offset)
    _values[count, triton.cdiv(pixels, rows)](  # back: of the others as they are, and of images × factor + offset
        images, second, zeros, factor if others is None else ones, offset, factor, offset, out, pixels, channels,
        back=others is not None, silu=False, rows=rows, columns=columns,
    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _doubled(small, large, length, channels, back: tl.constexpr, tile: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write each pixel of a row of small images four times into the large ones; back: the sum of the four."""
    row, value = tl.program_id(0).to(tl.int64), tl.program_id(1) * tile + tl.arange(0, tile)
    inside = value < length
    target = 4 * row * length + value + value // channels * channels  # column 2x of row 2y
    if back:
        total = tl.load(large + target, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(large + target + channels, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(large + target + 2 * length, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(large + target + 2 * length + channels, mask=inside, other=0.0).to(tl.float32)
        tl.store(small + row * length + value, total.to(small.dtype.element_ty), mask=inside)
    else:
        pixel = tl.load(small + row * length + value, mask=inside, other=0.0)
        tl.store(large + target, pixel, mask=inside)
        tl.store(large + target + channels, pixel, mask=inside)
        tl.store(large + target + 2 * length, pixel, mask=inside)
        tl.store(large + target + 2 * length + channels, pixel, mask=inside)


class Doubled(torch.autograd.Function):
    """Images of twice the size, each pixel four times: torch's kernel takes ten times as long as its bytes need."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor) -> torch.Tensor:
        """Return them in the layout of ``_laid_out``."""
        count, channels, height, width = images.shape
        large = images.new_empty(count, 2 * height, 2 * width, channels).movedim(-1, 1)
        Doubled._copy(_laid_out(images), large, back=False)
        return large

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """Return the sum over the four pixels that one has become."""
        count, channels, height, width = slopes[0].shape
        small = slopes[0].new_empty(count, height // 2, width // 2, channels).movedim(-1, 1)
        Doubled._copy(small, _laid_out(slopes[0]), back=True)
        return small

    @staticmethod
    def _copy(small: torch.Tensor, large: torch.Tensor, *, back: bool) -> None:
        count, channels, height, width = small.shape
        length = width * channels
        _doubled[count * height, triton.cdiv(length, TILE)](small, large, length, channels, back=back, tile=TILE)


class WatchedSteps(TorchFunctionMode):
    """Watches a step: which group norms are read by one SiLU and by nothing else, and which convolutions add a bias."""

    def __init__(self) -> None:
        super().__init__()
        self._outputs: list[tuple[torch.Tensor, torch.Tensor, list[Any]]] = []
        self.biases: set[int] = set()  # ids of the convolutions' biases

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and remember who reads the output of a norm."""
        for _, output, readers in self._outputs:
            readers += [function for value in (*args, *(kwargs or {}).values()) if value is output]
        answer = function(*args, **(kwargs or {}))
        if function is functional.group_norm:
            self._outputs.append((_arguments(*args, **(kwargs or {}))[2], answer, []))
        if function is functional.conv2d and len(args) > 2 and args[2] is not None and not args[2].requires_grad:
            self.biases.add(id(args[2]))
        return answer

    @property
    def followed(self) -> set[int]:
        """Return the ids of the weights of norms that a SiLU follows."""
        return {id(weight) for weight, _, readers in self._outputs if readers == [functional.silu]}


class FastSteps(TorchFunctionMode):
    """A context in which torch computes a step of bfloat16 on a GPU with fewer bytes moved.

    A convolution that ``watched`` saw returns its images without the bias, which is kept next to them as ``owed``. A
    norm or a sum that reads them adds it on the way; for any other function it is added first.
    """

    def __init__(self, watched: WatchedSteps) -> None:
        super().__init__()
        self._followed, self._biases = watched.followed, watched.biases
        self._cast: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._norms: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or what stands for it."""
        kwargs = kwargs or {}
        if function is functional.group_norm:
            images, groups, weight, bias, eps = _arguments(*args, **kwargs)
            if weight is not None and bias is not None:
                silu, owed = id(weight) in self._followed, _owed(images)
                added = 0.0 if owed is None else owed.float()
                normed: Any = NormedSilu.apply(images, groups, weight, bias, eps, silu, added)
                normed.holds_silu = silu
                return normed
        if function in _SUMS and len(args) == 2 and not kwargs and _addable(*args):
            biases = [owed for owed in map(_owed, args) if owed is not None]
            return Scaled.apply(args[0], None, sum(biases[1:], biases[0]), args[1])
        if getattr(function, "__name__", "") == "__get__" and not torch.is_tensor(answer := function(*args)):
            return answer  # a shape or a type: nothing has to be added for it
        args = tuple(map(_settled, args))
        kwargs = {name: _settled(value) for name, value in kwargs.items()}
        if function is functional.silu and getattr(args[0], "holds_silu", False):
            return args[0]
        if function is functional.interpolate and kwargs.get("mode", "nearest") == "nearest":
            if args[0].ndim == 4 and kwargs.get("scale_factor") == 2 and len(args) == 1:
                return Doubled.apply(args[0])
            with torch.autocast(args[0].device.type, enabled=False):  # which would copy pixels as float32
                return function(_laid_out(args[0]), *args[1:], **kwargs)  # diffusers changes the layout of many images
        if function in _DIVISIONS and isinstance(args[1], float) and args[1] == 1:
            return args[0]
        if function is functional.conv2d and len(args) > 2 and id(args[2]) in self._biases:
            weight, bias = map(self._once, args[1:3])
            convolved: Any = function(args[0], weight, None, *args[3:], **kwargs)
            convolved.owed = bias
            return convolved
        if function in (functional.conv2d, functional.linear) and len(args) > 1:
            args = (args[0], *(self._once(value) if torch.is_tensor(value) else value for value in args[1:]))
        if function is functional.batch_norm and (numbers := self._batch_norm(*args, **kwargs)) is not None:
            return Scaled.apply(args[0], *numbers)
        return function(*args, **kwargs)

    def _batch_norm(
        self, images: Any, mean: Any, variance: Any, weight: Any = None, bias: Any = None, training: bool = False,
        momentum: Any = None, eps: float = 1e-5,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:  # fmt: skip
        """Return what a batch norm that is not trained multiplies with and adds; None for other ones."""
        if training or any(value is None or value.requires_grad for value in (mean, variance, weight, bias)):
            return None
        if id(weight) not in self._norms:
            scale = weight.float() * (variance.float() + eps).rsqrt()
            self._norms[id(weight)] = weight, scale, bias.float() - mean.float() * scale
        return self._norms[id(weight)][1:]

    def _once(self, weight: torch.Tensor) -> torch.Tensor:
        """Return a weight in bfloat16, as autocast would cast it in every step."""
        if weight.requires_grad or weight.dtype != torch.float32:
            return weight
        if id(weight) not in self._cast:
            self._cast[id(weight)] = weight, weight.to(torch.bfloat16)
        return self._cast[id(weight)][1]


_DIVISIONS: tuple[Callable[..., Any], ...] = (torch.Tensor.div, torch.Tensor.__truediv__, torch.div)
_SUMS: tuple[Callable[..., Any], ...] = (torch.Tensor.add, torch.Tensor.__add__, torch.add)


def _owed(value: Any) -> torch.Tensor | None:
    """Return the bias that a convolution did not add to these images, None if there is none."""
    owed: torch.Tensor | None = getattr(value, "owed", None)
    return owed


def _settled(value: Any) -> Any:
    """Return images with the bias that is still missing; any other value as it is."""
    if _owed(value) is None:
        return value
    if not hasattr(value, "settled"):
        value.settled = Scaled.apply(value, None, value.owed)
    return value.settled


def _addable(first: Any, second: Any) -> bool:
    """Return whether these are images of one shape and type, and one of them still lacks a bias."""
    both = torch.is_tensor(first) and torch.is_tensor(second)
    alike = both and first.ndim == 4 and first.shape == second.shape and first.dtype == second.dtype
    return alike and (_owed(first) is not None or _owed(second) is not None)


def _arguments(
    images: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> tuple[torch.Tensor, int, Any, Any, float]:
    return images, num_groups, weight, bias, eps
