"""Objects in place of names: networks, and datasets that people hold in Python, which are written once as files."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.files import check_own
from holdfast.core.names import unknown, write_options
from holdfast.data.images import over_white
from holdfast.data.native import MOST_BANDS, encode_native
from holdfast.models import label_spaces, live
from holdfast.pipeline.files import IN_MEMORY

IMAGE, LABEL, MASK = ("image", "img", "picture"), ("label", "labels", "target", "class"), ("mask", "masks")
_PATH = ("path", "file", "filename", "filepath", "image_path")
_OURS = (
    "condition", "scenario", "status", "sample_id", "fold", "kind", "licence", "license", "mask_path",
    "published_sha256",
)  # fmt: skip
"""Columns that mean something in a manifest; a user's own become ``own_NAME``."""
_MOST_CHECKED = 16  # items whose second reading has to be equal


@dataclass(frozen=True)
class LiveData:
    """Items of a dataset in memory."""

    # mappings with ``image`` or ``path``, ``label``, perhaps ``mask``, and further columns
    items: Iterable[Mapping[str, Any]]
    classes: Sequence[str] = ()  # the names of classes by number, if the dataset says them; empty otherwise
    # reads one item again, to see whether the dataset changes between two readings; None: cannot
    again: Any = field(default=None, repr=False)


def is_name(value: Any) -> bool:
    """Return whether a value names a dataset, rather than being one."""
    return isinstance(value, (str, os.PathLike))


def write_data(value: Any, out: Path, class_names: Sequence[str] | str = ()) -> tuple[str, tuple[str, ...]]:
    """Write a dataset's images, masks and manifest below ``out``; return its name for verbs, and its classes.

    Labels that are numbers are places in the dataset's own classes, or in ``class_names`` if it has none.
    """
    data, folder = _read(value), out / IN_MEMORY
    names = data.classes or output_names(class_names)
    check_own(out, "spec.json", "*/spec.json", ".parts", f"{IN_MEMORY}/images")
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve().anchor
    rows: list[dict[str, Any]] = []
    for number, item in enumerate(data.items):
        where = f"item {number} of the dataset"
        label = _label(item["label"], names, where)
        stem = f"{_file_name(label)}/{number:06d}"
        row = {"sample_id": stem, "label": label} | {
            f"own_{name}" if name in _OURS else name: text for key, value in item.items()
            if (name := str(key).strip()) not in ("image", "path", "label", "mask")
            and (text := _plain(value)) is not None
        }  # fmt: skip
        if "path" in item:
            row["path"] = _below(root, Path(item["path"]))
        else:
            picture = _array(item["image"], where)
            if number < _MOST_CHECKED and data.again and not np.array_equal(picture, data.again(number)):
                raise UserError(
                    f"{where} changes between two readings, so answers could not be repeated: give the dataset without "
                    "random augmentation"
                )
            row["path"] = _below(root, _write(folder / "images" / stem, picture))
        mask: Any = item.get("mask")
        if is_name(mask) and os.fspath(mask):
            row["mask"] = _below(root, Path(mask))
        elif not (is_name(mask) or isinstance(mask, (float, type(None))) or type(mask).__name__ == "NAType"):  # no NaN
            row["mask"] = _below(root, _write(folder / "masks" / stem, _mask(mask, where)))
        rows.append(row)
    if not rows:
        raise UserError("the dataset is empty; it must have at least one item")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = pa.table({key: [row.get(key) for row in rows] for key in columns})
    pq.write_table(table, folder / "manifest.parquet")
    return f"manifest:{folder / 'manifest.parquet'}?root={root}", tuple(data.classes)


def _below(root: str, path: Path) -> str:
    """Return a path below the root: / or, on Windows, the drive of the run."""
    path = path.resolve()
    if not path.is_relative_to(root):
        raise UserError(
            f"{path} is on another drive than the run ({root}): copy the image there, or choose another out"
        )
    return path.relative_to(root).as_posix()


def _write(stem: Path, pixels: NDArray[Any]) -> Path:
    """Write a file without loss and return its path; a file of the same bytes is left alone."""
    import cv2

    if pixels.ndim == 2 or (pixels.dtype == np.uint8 and pixels.shape[2] == 3):
        last_first = pixels if pixels.ndim == 2 else pixels[:, :, ::-1]
        encoded, suffix = cv2.imencode(".png", np.ascontiguousarray(last_first))[1].tobytes(), "png"
    else:
        encoded, suffix = encode_native(pixels)
    file = stem.with_name(f"{stem.name}.{suffix}")
    if not (file.is_file() and file.read_bytes() == encoded):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_bytes(encoded)
        part.replace(file)
    return file


def _read(value: Any) -> LiveData:
    """Return the items of what people call a dataset."""
    if isinstance(value, LiveData):
        return value
    if hasattr(value, "iter_samples") and hasattr(value, "default_classes"):
        return LiveData(_from_fiftyone(value))
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        return LiveData(_from_table(value.to_dict("records"), list(value.columns)))
    if isinstance(value, Mapping):
        return _from_columns(value)
    if hasattr(value, "features") and hasattr(value, "column_names"):  # Hugging Face
        label = _pick(LABEL, value.column_names, "column of labels")
        classes = getattr(value.features[label], "names", None) or ()
        return LiveData(_from_table(iter(value), value.column_names), classes)
    if hasattr(value, "dataset") and hasattr(value, "batch_size") and not hasattr(value, "__getitem__"):
        raise UserError("data is a loader of batches; give loader.dataset, the dataset that it reads from")
    if isinstance(value, (str, bytes)) or not hasattr(value, "__getitem__") or not hasattr(value, "__len__"):
        raise UserError(
            "data is a folder or a name (holdfast ls data), a torch or Hugging Face Dataset, a pandas table with a "
            f"column path, or a dict with images and labels, not {type(value).__name__}"
        )
    classes = getattr(value, "classes", None) or getattr(getattr(value, "dataset", None), "classes", None) or ()
    return LiveData(
        (_item(value[number], number) for number in range(len(value))), tuple(map(str, classes)),
        lambda number: _array(_item(value[number], number)["image"], f"item {number} of the dataset"),
    )  # fmt: skip


def _from_columns(value: Mapping[str, Any]) -> LiveData:
    names = {key: [name for name in (key, f"{key}s") if name in value] for key in ("image", "label", "mask")}
    for key in ("image", "label"):
        if not names[key]:
            raise UserError(f"data as a dict needs {key}s; it has {', '.join(map(str, value)) or 'nothing'}")
    columns = {key: value[places[0]] for key, places in names.items() if places}
    taken = {name for several in names.values() for name in several} | {"classes"}
    columns |= {key: several for key, several in value.items() if key not in taken}
    lengths = {key: len(several) for key, several in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the columns of data differ in length: {', '.join(f'{k} {n}' for k, n in lengths.items())}")
    items = ({key: several[number] for key, several in columns.items()} for number in range(lengths["image"]))
    return LiveData(items, tuple(value.get("classes", ())))


def _from_table(rows: Iterable[Mapping[Any, Any]], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table under our names of columns."""
    label, mask = _pick(LABEL, columns, "column of labels"), next((name for name in MASK if name in columns), None)
    image = next((name for name in IMAGE if name in columns), None)
    path = None if image else _pick(_PATH, columns, "column of images or paths")
    renamed = {image: "image", path: "path", label: "label", mask: "mask"}
    for row in rows:
        yield {renamed.get(key, str(key)): value for key, value in row.items()}


def _from_fiftyone(view: Any) -> Iterator[dict[str, Any]]:
    """Yield the samples of a FiftyOne dataset or view that have a classification, with masks and plain fields."""
    schema = view.get_field_schema()
    kinds = {name: getattr(getattr(kind, "document_type", None), "__name__", "") for name, kind in schema.items()}
    labels = [name for name, kind in kinds.items() if kind == "Classification"]
    label = _pick(("ground_truth", *labels), labels, "field with a Classification")
    mask = next((name for name, kind in kinds.items() if kind == "Segmentation"), "")
    attributes = [name for name, kind in kinds.items() if not kind and name not in ("id", "filepath", "sample_id")]
    for sample in view.iter_samples():
        if sample[label] is not None:
            drawn = sample[mask] if mask else None
            yield {name: sample[name] for name in attributes} | {
                "path": sample.filepath, "label": sample[label].label, "mask": drawn and drawn.get_mask(),
            }  # fmt: skip


def _pick(wanted: Sequence[str], known: Sequence[str], what: str) -> str:
    for name in wanted:
        if name in known:
            return name
    raise unknown(what, wanted[0], known)


def _item(item: Any, number: int) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return next(iter(_from_table([item], list(item))))
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        return dict(zip(("image", "label", "mask"), item, strict=False))
    raise UserError(f"item {number} of the dataset should be (image, label), (image, label, mask) or a dict")


def _array(image: Any, where: str) -> NDArray[Any]:
    """Return an image as HWC uint8 RGB; PIL images, arrays and tensors, CHW or HWC, 0..255 or 0..1.

    Whole numbers of 16 bits stay as they are, and so do several bands, which are HWC. Transparency goes over white.
    """
    if hasattr(image, "convert") and image.mode != "F" and not image.mode.startswith("I"):
        return over_white(np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB")))
    array = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if getattr(image, "mode", "") == "I" and array.size and array.min() >= 0 and array.max() <= 0xFFFF:
        array = array.astype(np.uint16)  # how Pillow opens some files of 16 bits
    several = array.ndim == 3 and not {1, 3} & {array.shape[0], array.shape[2]} and array.shape[2] <= MOST_BANDS
    if several and array.shape[1] != array.shape[0] < array.shape[2]:
        raise UserError(
            f"{where} has an image of shape {array.shape}, which looks like bands first; give height × width × bands"
        )
    if several and array.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(array)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        array = np.moveaxis(array, 0, 2)
    if array.ndim != 3 or array.shape[2] not in (1, 3):
        raise UserError(
            f"{where} has an image of shape {array.shape}; height × width × 3 is wanted, or up to {MOST_BANDS} bands "
            "of uint8 or uint16"
        )
    array = np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array
    if array.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f" or not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
        raise UserError(
            f"{where} has an image of {array.dtype} from {array.min():.3g} to {array.max():.3g}; wanted are uint8 or "
            "floats from 0 to 1: give the dataset without its normalising transform, and that one as transform="
        )
    return np.ascontiguousarray(np.rint(array * 255).astype(np.uint8))


def _mask(mask: Any, where: str) -> NDArray[np.uint8]:
    array = np.asarray(mask.detach().cpu() if hasattr(mask, "detach") else mask)
    array = array.squeeze()
    if array.ndim != 2:
        raise UserError(f"{where} has a mask of shape {array.shape}; height × width is wanted")
    return np.where(array > 0, np.uint8(255), np.uint8(0))


def _label(label: Any, classes: Sequence[str], where: str) -> str:
    if isinstance(label, str):
        return label
    try:
        value = label.item() if hasattr(label, "item") else label
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        value, number = label, None
    if number is None or number != value:
        raise UserError(f"{where} has the label {value!r}; a name or a whole number is wanted")
    if not classes:
        return str(number)
    if not 0 <= number < len(classes):
        raise UserError(
            f"{where} has the label {number}; with {len(classes)} classes, expected 0 to {len(classes) - 1}"
        )
    return str(classes[number])


def _plain(value: Any) -> Any:
    """Return a value that a column of the manifest can hold, else None."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, int, float, bool)) else None


def _file_name(label: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in label).strip(".") or "_"


ARGUMENTS = ("transform", "class_names")  # of functions that take models, apart from their spec's options


def with_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb with names in place of live objects.

    Models stay in memory, so the work stays in this process. Datasets are written below ``out``.
    """
    named = {name: value for name, value in values.items() if name not in ARGUMENTS}
    classes: tuple[str, ...] = ()
    if "data" in named and not is_name(named["data"]):
        if named.get("out") is None:
            raise UserError("a dataset given as an object is written below out=; say where")
        named["data"], classes = write_data(named["data"], Path(named["out"]), values.get("class_names") or ())
    if "models" in named:
        given = {name: values[name] for name in ARGUMENTS if values.get(name) is not None}
        named["models"] = model_names(named["models"], classes, **given)
        executor = named.get("executor")
        shared = named.get("workers", 1) in (None, 1) and (executor is None or executor.shares_memory)
        if not shared and any(name.startswith("live:") for name in named["models"]):
            raise UserError("models given as objects stay in this process; leave out workers and executor")
    return named


def model_names(models: Any, classes: tuple[str, ...] = (), *, transform: Any = None, class_names: Any = None) -> Any:
    """Return the names of models that are given as names, objects, a list of both, or a dict name → object."""
    given = models.values() if isinstance(models, Mapping) else models if isinstance(models, list | tuple) else [models]
    if class_names and not classes and all(map(is_name, given)):
        raise UserError(
            "class_names= is for networks given as objects; for a model given by its name, write the names of its "
            "outputs into a file, one a line, and give MODEL?labels=names.txt"
        )
    if isinstance(models, str):
        return models
    labels = output_names(class_names) if class_names is not None else None
    if isinstance(models, Mapping):
        return [_name(model, str(name), transform, labels, classes) for name, model in models.items()]
    several = list(models) if isinstance(models, (list, tuple)) else [models]
    names = [_name(model, "", transform, labels, classes) for model in several]
    twice = {name for name in names if names.count(name) > 1}
    if any(name.startswith("live:") for name in twice):
        raise UserError(f"two models share the name {min(twice)}; give them as a dict name → model")
    return names


def pair_names(old: Any, new: Any, classes: tuple[str, ...] = (), **given: Any) -> list[str]:
    """Return the names of two models; objects that would share one are distinguished as NAME-old and NAME-new."""
    pair = [old, new]
    if all(live.is_live(model) and not is_name(model) for model in pair) and live.name_of(old) == live.name_of(new):
        pair = [{f"{live.name_of(model)}-{which}": model} for model, which in ((old, "old"), (new, "new"))]
    names = [model_names(model, classes, **given) for model in pair]
    return [name if isinstance(name, str) else name[0] for name in names]


def check_names(models: Any, verb: str) -> None:
    """Raise a UserError for models given as objects to a verb that takes names only."""
    several = (
        models.values() if isinstance(models, Mapping) else models if isinstance(models, list | tuple) else [models]
    )
    wrong = next((type(model).__name__ for model in several if not is_name(model)), "")
    if wrong:
        raise UserError(
            f"{verb} takes models by name, not a {wrong}: write python:MODULE:ATTRIBUTE for an object of your own "
            "module (holdfast ls models lists the others)"
        )


def output_names(given: Sequence[str] | str) -> tuple[str, ...]:
    """Return the names of a model's outputs; ``imagenet`` is the list of ImageNet's thousand classes."""
    if not isinstance(given, str):
        return tuple(map(str, given))
    space = label_spaces.imagenet() if given == "imagenet" else None
    if space is None:
        raise UserError(f"class_names={given!r}: expected a list of the outputs' names in order, or 'imagenet'")
    return space.names


def _name(model: Any, name: str, transform: Any, labels: Any, classes: Sequence[str]) -> str:
    if is_name(model):
        return f"{model}{write_options({'name': name})}" if name and "?" not in str(model) else str(model)
    if not live.is_live(model):
        raise UserError(
            f"a model is a name (holdfast ls models), a torch network, a callable on images or an object with predict, "
            f"not {type(model).__name__}"
        )
    return live.keep(model, name, transform=transform, labels=labels, classes=classes)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that the system may remove, and say at the end where it is; after a refusal nothing stays."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
    try:
        yield folder
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if folder.exists() and logging.getLogger("holdfast").isEnabledFor(logging.WARNING):
            print(f"This run is temporary: {folder} (give out= to keep it)")
