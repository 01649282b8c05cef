"""Read files of weights without running anything that they hold."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, first_line, raise_machine_trouble
from holdfast.core.lazy import torch
from holdfast.core.networks import refused_pickle

_WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
_AVERAGED = ("ema_model_state_dict", "G_ema", "ema")


class Inert:
    """Stands for every pickled object that is not a tensor: takes any arguments and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        """Make an empty stand-in."""
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def read_weights(file: Path, *, averaged: bool = False) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors of a file by name, and the metadata of safetensors.

    The file is safetensors, or what ``torch.save`` wrote; there, the tensors may be wrapped as training scripts do, and
    objects next to them are left out. ``averaged``: prefer averaged weights if the file has both.
    """
    if file.suffix == ".safetensors":
        return _read_safetensors(file)
    zipped = zipfile.is_zipfile(file)
    if zipped and any(name.endswith("/constants.pkl") for name in zipfile.ZipFile(file).namelist()):
        raise UserError(
            f"{file.name} is a TorchScript archive, which is code; export the model to ONNX (onnx:FILE), save its "
            "state_dict() for torch:ARCHITECTURE@FILE, or load it yourself and name it python:MODULE:ATTRIBUTE"
        )
    with file.open("rb") as opened:
        if not zipped and opened.read(1) != b"\x80":  # what every pickle begins with
            raise UserError(f"{file.name} is not a file of weights: give what torch.save or safetensors wrote")
    try:
        with warnings.catch_warnings():  # of pickles that torch did not write; what it cannot read is an error below
            warnings.simplefilter("ignore")
            unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file) if zipped else ["argparse.Namespace"]
            with torch.serialization.safe_globals([(Inert, name) for name in unknown]):
                content = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, AttributeError, ImportError) as error:
        raise refused_pickle(file.name, error) from error
    except Exception as error:  # damaged pickles raise anything
        raise_machine_trouble(error)
        raise UserError(f"{file.name} is not a checkpoint that torch can read: {first_line(error)}") from error
    return _unwrap(content, file.name, _AVERAGED + _WRAPPERS if averaged else _WRAPPERS), {}


def _read_safetensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            state = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (not a mapping)
            return state, opened.metadata() or {}
    except SafetensorError as error:
        raise UserError(f"{file.name} is not a safetensors file: {first_line(error)}") from error


def _unwrap(content: Any, file_name: str, wrappers: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return the tensors by name, out of the dictionaries that training scripts wrap around them."""
    while isinstance(content, Mapping):
        inner = next((content[key] for key in wrappers if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            tensors = {str(key): value for key, value in content.items() if isinstance(value, torch.Tensor)}
            if tensors:
                return tensors
            break
        content = inner
    raise UserError(
        f"{file_name} holds no state dict: no tensors by name, alone or under {', '.join(wrappers)}; save the model's "
        "state_dict()"
    )
