"""Heavy arithmetic of scenarios, compiled for pictures of one size: fewer passes over memory."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import first_line
from holdfast.scenarios.base.condition import Condition

if TYPE_CHECKING:
    from torch import Tensor

APART = 1e-3
"""How many values may differ by more than one from uncompiled ones: compiled divisions are less exact."""


class Compiled:
    """Compiled versions of functions for batches of one shape, made at the first use."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._made: dict[Hashable, Any] = {}

    def __call__(self, function: Callable[..., Tensor], images: Tensor, *others: Tensor, **fixed: Any) -> Tensor:
        """Return the function's result for images, other tensors and constant numbers."""
        import torch

        if tuple(images.shape) != self.shape:
            return function(images, *others, **fixed)
        key = function, *fixed.items()
        if key not in self._made:
            self._made[key] = torch.compile(_bound(function, fixed), dynamic=False, fullgraph=True)
        result: Tensor = self._made[key](images, *others)
        return result


def _bound(function: Callable[..., Tensor], fixed: dict[str, Any]) -> Any:
    def bound(*tensors: Tensor) -> Tensor:
        return function(*tensors, **fixed)

    return with_own_code(bound)


def with_own_code(function: Any) -> Any:
    """Return the function with code of its own: torch.compile keeps few versions per code object."""
    return types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def compile_for(
    render: Callable[..., dict[Condition, Tensor]], conditions: Sequence[Condition], shape: Sequence[int], device: str
) -> tuple[Compiled | None, str]:
    """Compile the functions of some conditions for batches NCHW of one shape, and try them.

    Args:
        render: ``render_batch``.
        conditions: which.
        shape: of the images.
        device: where.

    Returns:
        None and the reason where that fails, makes other pictures, or gains nothing.
    """
    import torch

    compiled = Compiled(shape)
    rng = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0.2, 1, shape[3])
    images = (torch.randint(0, 256, tuple(shape), generator=rng) * ramp).to(device, torch.uint8)
    masks = (torch.rand((shape[0], *shape[2:]), generator=rng) < 0.5).to(device)
    names = [str(number) for number in range(shape[0])]

    def render_timed(how: Compiled | None) -> tuple[dict[Condition, Tensor], float]:
        took = []
        for _ in range(3):
            start = time.perf_counter()
            pictures = render(conditions, images, masks, sample_ids=names, donors=images, compiled=how)
            if images.is_cuda:
                torch.cuda.synchronize(device)
            took.append(time.perf_counter() - start)
        return pictures, min(took)

    try:
        with torch.no_grad():
            (plain, before), (quick, after) = render_timed(None), render_timed(compiled)
            for condition in conditions:
                apart = (plain[condition].short() - quick[condition].short()).abs()
                share = (apart > 1).double().mean().item()
                if share > APART:
                    return None, f"{condition.name} would differ in {share:.2%} of all values"
    except Exception as error:  # a compiler fails in many ways, and none of them is a reason to have no pictures
        return None, first_line(error)
    return (compiled, "") if after < before else (None, f"it takes {after / before:.1f} times as long")
