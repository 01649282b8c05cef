"""What all rooms that load networks need: a device that exists, a hash of weights, and quiet libraries."""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch


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


def weights_sha256(*modules: torch.nn.Module) -> str:
    """Return the SHA-256 of names, types, shapes and bytes of all parameters and buffers, sorted by name."""
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
