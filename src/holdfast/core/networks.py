"""What all rooms that load networks need: a device that exists, a hash of weights, quiet libraries, plain errors."""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.lazy import torch
from holdfast.core.remote import mind_the_hub


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
    """Return the names of the GPUs that share the work of ``auto`` or ``cuda``; nothing where there is but one."""
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


def offline(name: str, error: Exception, instead: str = PACKAGED) -> UserError:
    """Return the error for a model that the hub does not give; ``instead``: what its user can do."""
    away = f"the model hub cannot be reached or does not have {name!r}, and no downloaded copy is here"
    return UserError(f"{away}; {instead} ({first_line(error)})")


@contextmanager
def hub_errors(
    shown: str, *, local: bool, instead: str = PACKAGED, wrong: str = "cannot be loaded",
    libraries: tuple[str, ...] = ("transformers",),
) -> Iterator[None]:  # fmt: skip
    """Turn what goes wrong while a library loads the model ``shown`` into a UserError, and keep the library quiet."""
    from safetensors import SafetensorError

    if not local:
        mind_the_hub()
    try:
        with quiet(*libraries):
            yield
    except OSError as error:  # all of the hub's and the network's errors are
        if local:
            raise UserError(f"{shown} cannot be loaded: {first_line(error)}") from error
        raise offline(shown, error, instead) from error
    except (ValueError, RuntimeError, KeyError, ImportError, TypeError, AttributeError, SafetensorError) as error:
        raise UserError(f"{shown} {wrong}: {first_line(error)}") from error


def check_complete(report: Mapping[str, Any], shown: str) -> None:
    """Raise a UserError for missing weights, which transformers and diffusers fill with random numbers."""
    if missing := sorted(report["missing_keys"]):
        raise UserError(f"{shown} lacks weights: {', '.join(missing[:3])}")
