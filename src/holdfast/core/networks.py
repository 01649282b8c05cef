"""What all rooms that load networks need: devices, hashes of weights, fused layers, quiet libraries, plain errors."""

from __future__ import annotations

import hashlib
import importlib
import operator
import os
import socket
import threading
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.core.errors import HoldfastError, UserError, first_line, out_of_memory
from holdfast.core.lazy import torch

_HUB_SECONDS = 3.0  # to connect to the hub


def resolve_device(device: str) -> str:
    """Return cuda, mps or cpu for ``auto``, whichever exists; raise UserError for a device that does not."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return next(kind for kind, works in available.items() if works)
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"there is no device called {device!r}; try auto, cpu, cuda or cuda:1") from error
    if not available.get(kind, False):
        raise UserError(f"this machine has no {kind} device that torch can use; try --device auto")
    return device


def several_gpus(device: str) -> tuple[str, ...]:
    """Return the names of the GPUs that share the work of ``auto`` or ``cuda``; nothing if there is but one."""
    if resolve_device(device) != "cuda" or torch.cuda.device_count() < 2:
        return ()
    count = torch.cuda.device_count()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(shown.split(",")[:count]) if shown else tuple(map(str, range(count)))


def weights_sha256(*modules: torch.nn.Module) -> str:
    """Return the SHA-256 of names, types, shapes and bytes of all parameters and buffers, sorted by name."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fuse(network: torch.nn.Module, device: str = "cuda", *, kernels: Any = None) -> torch.nn.Module:
    """Return a network whose convolutions, with the batch norm, addition and ReLU behind them, are one call each."""
    # Layer by layer, norms, additions and ReLUs only move bytes: half of a ResNet's time on a GPU, a fifth on a CPU.
    # On a CPU, other activations and norms without one are taken as well; on a GPU, with ``kernels`` (of
    # ``scenarios.tensors``), first convolutions and max pools.
    on_cpu = device == "cpu"
    tracer = _tracer(on_cpu)
    graph = tracer.trace(network)
    traced = torch.fx.GraphModule(tracer.root, graph)
    layers = dict(traced.named_modules())

    def layer(node: Any, *kinds: type) -> Any:
        called = layers.get(node.target) if isinstance(node, torch.fx.Node) and node.op == "call_module" else None
        return called if isinstance(called, kinds) else None

    def convolution(node: Any, within: str) -> tuple[Any, Any] | None:
        """Return a convolution with the norm behind it folded in, and its input; None if others read it."""
        norm = layer(node, torch.nn.BatchNorm2d)
        if norm is not None and _within(norm) != within:
            return None
        first = node if norm is None else node.args[0]
        plain = layer(first, torch.nn.Conv2d)
        if type(plain) is not torch.nn.Conv2d or plain.padding_mode != "zeros" or isinstance(plain.padding, str):
            return None
        if (plain.groups > 1 and not on_cpu) or (norm is None and plain.bias is None):
            return None
        if norm is not None and len(first.users) > 1:
            return None
        return torch.nn.utils.fuse_conv_bn_eval(plain, norm) if norm is not None else plain, first.args[0]

    def fold(node: Any, behind: Any, others: Sequence[Any], kind: str, within: str = "Identity") -> bool:
        """Let one call stand for all from the convolution before ``behind`` to ``node``; return whether it can."""
        if (behind is not node and len(behind.users) > 1) or (folded := convolution(behind, within)) is None:
            return False
        name = f"fused_{node.name}"
        main, added, unused_too = folded[0], list(others), []
        for other in others if not on_cpu and layer(behind, torch.nn.BatchNorm2d) is not None else ():
            if layer(other, torch.nn.BatchNorm2d) is None or len(other.users) > 1:
                continue
            if (beside := convolution(other, within)) is not None:  # one bias for both convolutions
                main.bias = torch.nn.Parameter(main.bias + beside[0].bias, requires_grad=False)
                beside[0].bias = None
                traced.add_submodule(f"{name}_beside", beside[0])
                with traced.graph.inserting_before(node):
                    added = [traced.graph.call_module(f"{name}_beside", beside[1:])]
                unused_too = [other, other.args[0]]
        stem = kernels is not None and folded[1].op == "placeholder" and not added and _is_stem(main)
        traced.add_submodule(name, _stem_layer(main, kernels) if stem else _fused_layer(main, kind))
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(name, (folded[1], *added)))
        for unused in dict.fromkeys((node, node.args[0], behind, behind.args[0], *unused_too)):
            if not unused.users:
                traced.graph.erase_node(unused)
        return True

    for node in list(traced.graph.nodes):
        relu = layer(node, torch.nn.ReLU) is not None or node.target in (torch.relu, torch.nn.functional.relu)
        other = layer(node, torch.nn.ReLU6, torch.nn.SiLU, torch.nn.Hardswish) if on_cpu else None
        source = node.args[0] if relu or other is not None else None
        if not isinstance(source, torch.fx.Node):
            continue
        adds = relu and source.target in (operator.add, operator.iadd, torch.add) and not source.kwargs
        both: list[Any] = [source.args[:2], source.args[1::-1]] if adds and len(source.users) == 1 else [(source,)]
        any(fold(node, behind, others, "ReLU" if relu else type(other).__name__) for behind, *others in both)
    for node in list(traced.graph.nodes) if kernels is not None else ():
        pool = layer(node, torch.nn.MaxPool2d)
        if pool is not None and _is_plain(pool):
            traced.add_submodule(f"fused_{node.name}", _pool_layer(pool, kernels))
            node.target = f"fused_{node.name}"
    for node in list(traced.graph.nodes) if on_cpu else ():
        norm = layer(node, torch.nn.BatchNorm2d)
        if norm is not None and _within(norm) in _ONEDNN:
            fold(node, node, (), _within(norm), _within(norm))
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


_ONEDNN: dict[str, tuple[str, list[float]]] = {
    "Identity": ("none", []), "ReLU": ("relu", []), "ReLU6": ("hardtanh", [0.0, 6.0]), "SiLU": ("swish", []),
    "Hardswish": ("hardswish", []),
}  # fmt: skip
"""What oneDNN calls an activation, with its numbers."""


def _tracer(on_cpu: bool) -> Any:
    """Return a tracer that leaves networks of other threads alone: torch.fx replaces ``Module.__call__`` for all."""
    own = threading.get_ident()

    class ThreadTracer(torch.fx.Tracer):
        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            if threading.get_ident() != own:
                return forward(*args, **kwargs)
            return super().call_module(m, forward, args, kwargs)

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            layers = (torch.nn.Conv2d, torch.nn.BatchNorm2d) if on_cpu else ()  # of any author
            return isinstance(m, layers) or super().is_leaf_module(m, module_qualified_name)

    return ThreadTracer()


def _within(norm: Any) -> str:
    """Return the name of the activation that a norm has in it, as timm's have; ``?`` for norms of other kinds."""
    if type(norm) is torch.nn.BatchNorm2d:
        return "Identity"
    timms = type(norm).__name__ == "BatchNormAct2d" and isinstance(norm.drop, torch.nn.Identity)
    return type(norm.act).__name__ if timms else "?"


def _fused_layer(convolution: Any, kind: str) -> torch.nn.Module:
    rest = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)
    at = (list(convolution.padding), list(convolution.stride), list(convolution.dilation), convolution.groups)
    activation, numbers = _ONEDNN[kind]

    class Fused(torch.nn.Module):
        """Convolution, addition of another image (if there is one) and ReLU."""

        def __init__(self) -> None:
            super().__init__()
            self.weight: Any = convolution.weight
            self.bias = convolution.bias
            self.packed: list[torch.Tensor] = []  # the weights as oneDNN reads them, instead of the others

        def forward(self, images: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
            if not images.is_cuda:
                return self.by_onednn(images, other)
            if other is None:
                return torch.cudnn_convolution_relu(images, self.weight, self.bias, *rest)
            return torch.cudnn_convolution_add_relu(images, self.weight, other, 1.0, self.bias, *rest)

        def by_onednn(self, images: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
            call: Any = torch.ops.mkldnn._convolution_pointwise
            if not self.packed:
                reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight
                self.packed.append(reorder(self.weight.detach().to_mkldnn(), *at, list(images.shape)))
                self.weight = None
            same, after = (self.packed[0], self.bias, *at), (activation, numbers, "")
            fused: torch.Tensor = (
                call(images, *same, *after) if other is None else call.binary(images, other, *same, "add", 1.0, *after)
            )
            return fused

    return Fused()


def _is_plain(pool: Any) -> bool:
    """Return whether a max pool has one number for each of its settings, as most have, and returns no places."""
    numbers = all(isinstance(value, int) for value in (pool.kernel_size, pool.stride, pool.padding))
    return numbers and pool.dilation == 1 and not pool.ceil_mode and not pool.return_indices


def _pool_layer(pool: Any, kernels: Any) -> torch.nn.Module:
    class Pool(torch.nn.Module):
        """Max pool that does not write where each maximum was, which takes most of the time of torch's."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if not images.is_contiguous(memory_format=torch.channels_last):
                return torch.nn.functional.max_pool2d(images, pool.kernel_size, pool.stride, pool.padding)
            pooled: torch.Tensor = kernels.pooled(images, pool.kernel_size, pool.stride, pool.padding)
            return pooled

    return Pool()


_STEM_WIDTH = 16
"""Channels that a first convolution sees: matrix units read multiples of eight, and this is the fewest they fill."""


def _is_stem(convolution: Any) -> bool:
    """Return whether a convolution of three channels skips every other pixel, as a network's first one often does."""
    same = convolution.padding[0] == convolution.padding[1] and convolution.dilation == (1, 1)
    return bool(same and 4 * convolution.in_channels <= _STEM_WIDTH and convolution.stride == (2, 2))


def _stem_layer(convolution: Any, kernels: Any) -> torch.nn.Module:
    """Return convolution and ReLU with stride 2 as those with stride 1 of blocks of 2 × 2 pixels: the same sums."""
    padding, (_, channels, *size) = convolution.padding[0], convolution.weight.shape
    before = (padding + 1) // 2  # blocks
    shift = 2 * before - padding
    blocks = [(side + shift + 1) // 2 for side in size]
    weight = torch.nn.functional.pad(
        convolution.weight.detach(), (shift, 2 * blocks[1] - size[1] - shift, shift, 2 * blocks[0] - size[0] - shift)
    )
    parts = weight.reshape(-1, channels, blocks[0], 2, blocks[1], 2)  # out, in, block, dy, block, dx
    folded = parts.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
    folded = torch.nn.functional.pad(folded, (0, 0, 0, 0, 0, _STEM_WIDTH - 4 * channels))

    class Stem(torch.nn.Module):
        """Convolution and ReLU that begin a network."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(folded.contiguous(), requires_grad=False)
            self.bias = convolution.bias

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            images = images.contiguous(memory_format=torch.channels_last)
            rows, columns = ((images.shape[axis + 2] + 2 * padding - size[axis]) // 2 + blocks[axis] for axis in (0, 1))
            seen = kernels.unshuffled(images, before, rows, columns, _STEM_WIDTH)
            if not seen.is_cuda:
                return torch.nn.functional.conv2d(seen, self.weight, self.bias).relu()
            return torch.cudnn_convolution_relu(seen, self.weight, self.bias, (1, 1), (0, 0), (1, 1), 1)

    return Stem()


INT8_SCALE = ".int8_scale"  # behind a weight's name: what its rows of int8 are multiplied by


def packed(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return matrices and kernels as int8 with a scale per row, the rest in half precision: half as many bytes."""
    small: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        if weight.ndim < 2 or weight[0].numel() < 9:  # the scales would take as much as they save
            small[name] = (weight.half() if weight.is_floating_point() else weight).cpu().contiguous()
            continue
        rows = weight.detach().float().cpu().flatten(1)
        scale = (rows.abs().amax(1) / 127).clamp(min=1e-7).half()
        small[name] = (rows / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8).view(weight.shape)
        small[name + INT8_SCALE] = scale
    return small


def unpacked(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights of ``packed`` as numbers again; others as they are."""
    return {
        name: weight.float() * weights[name + INT8_SCALE].float().view(-1, *[1] * (weight.ndim - 1))
        if name + INT8_SCALE in weights
        else weight
        for name, weight in weights.items()
        if not name.endswith(INT8_SCALE)
    }


@contextmanager
def quiet(*libraries: str) -> Iterator[None]:
    """Silence progress bars, notes and warnings of ``diffusers`` or ``transformers``, which would break into ours."""
    loggings = [importlib.import_module(f"{library}.utils.logging") for library in libraries]
    before = [(logging, logging.get_verbosity(), logging.is_progress_bar_enabled()) for logging in loggings]
    for logging in loggings:
        logging.set_verbosity(logging.CRITICAL)
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # their calls of other libraries are deprecated there
            yield
    finally:
        for logging, verbosity, bars in before:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()


PACKAGED = "use packaged: models, which come with pip, or a local file with torch:ARCHITECTURE@FILE"


class HubError(UserError):
    """A model is needed that the hub does not give."""


def offline(name: str, error: Exception, instead: str = PACKAGED) -> HubError:
    """Return the error for a model that the hub does not give; ``instead``: what its user can do."""
    away = f"the model hub cannot be reached or does not have {name!r}, and no downloaded copy is here"
    return HubError(f"{away}; {instead} ({first_line(error)})")


@contextmanager
def hub_errors(
    shown: str, *, local: bool, instead: str = PACKAGED, wrong: str = "cannot be loaded",
    libraries: tuple[str, ...] = ("transformers",),
) -> Iterator[None]:  # fmt: skip
    """Turn what goes wrong while a library loads the model ``shown`` into a UserError, and keep the library quiet."""
    if not local:
        mind_the_hub()
    try:
        with quiet(*libraries):
            yield
    except OSError as error:  # all of the hub's and the network's errors are
        if local:
            raise UserError(f"{shown} cannot be loaded: {first_line(error)}") from error
        raise offline(shown, error, instead) from error
    except HoldfastError:
        raise
    except Exception as error:  # of a folder of another kind, libraries raise anything
        if out_of_memory(error):
            raise
        raise UserError(f"{shown} {wrong}: {first_line(error)}") from error


def refused_pickle(file: str, error: Exception) -> UserError:
    """Return the error for a file of weights that torch refuses to unpickle."""
    if "global" in str(error).lower():
        return UserError(
            f"{file} holds Python objects other than tensors, which are never unpickled because they can run code; "
            "save the model's state_dict(), best as safetensors"
        )
    return UserError(f"{file} is not a checkpoint that torch can read")


def check_complete(report: Mapping[str, Any], shown: str) -> None:
    """Raise a UserError for missing weights, which transformers and diffusers fill with random numbers."""
    if missing := sorted(report["missing_keys"]):
        raise UserError(f"{shown} lacks weights: {', '.join(missing[:3])}")


def mind_the_hub() -> None:
    """Switch the hub's library to offline mode if nothing answers at the hub's address."""
    # Left to itself it tries every file five times, with longer and longer pauses, which is a minute of silence for
    # a user behind a firewall. A proxy or the user's own ``HF_HUB_OFFLINE`` is left alone.
    from huggingface_hub import constants

    if "HF_HUB_OFFLINE" in os.environ or urllib.request.getproxies():
        return
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=_HUB_SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
    else:
        constants.HF_HUB_OFFLINE = False
