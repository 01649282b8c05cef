"""Write a dataset's images as questions for other people's harnesses of vision-language models.

``inspect-ai``: ``inspect eval FOLDER/task.py --model MODEL``; ``lmms-eval``: in the folder,
``python -m lmms_eval --include_path . --tasks NAME --model MODEL``. Neither is needed to write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import generator
from holdfast.core.types import Sample
from holdfast.pipeline.ask.wording import LETTERS, shown
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast_evidence.export.private import free_name
from holdfast_evidence.export.subject import TEMPLATES, ExportedPicture, ExportSubject, pictures, plain, rendered, slug

QUESTION = "What is the main object in this image?"

_TEXTS = ("question", "answer", "letters", "label", "condition", "sample_id", "source_id")
_FEATURES: dict[str, Any] = {name: {"dtype": "string", "_type": "Value"} for name in _TEXTS}
_FEATURES |= {"options": {"feature": _FEATURES["label"], "_type": "Sequence"}, "image": {"_type": "Image"}}
_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in _TEXTS), ("options", pa.list_(pa.string())),
     ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())]))],
    {"huggingface": json.dumps({"info": {"features": _FEATURES}})},
)  # fmt: skip


def write_inspect(subject: ExportSubject, folder: Path, progress: Progress = silent) -> list[str]:
    """Write a task of inspect_ai and return notes for the user."""
    left_out, lines = list[str](), list[str]()
    for number, (picture, asked) in enumerate(_asked(subject, left_out, progress)):
        path = f"images/{number:06d}{picture.suffix}"
        write_atomic(folder / path, picture.image)
        content = [{"type": "text", "text": QUESTION}, {"type": "image", "image": path}]
        facts = {name: asked[name] for name in ("condition", "source_id", "label")}
        record = {"id": asked["sample_id"], "input": [{"role": "user", "content": content}],
                  "choices": asked["options"], "target": asked["answer"], "metadata": facts}  # fmt: skip
        lines.append(json.dumps(record))
    write_atomic(folder / "samples.jsonl", "\n".join([*lines, ""]).encode())
    write_atomic(folder / "task.py", (TEMPLATES / "inspect_task.py.txt").read_bytes())
    return [f"{len(lines)} questions; inspect eval task.py --model MODEL", *left_out]


def write_lmms(subject: ExportSubject, folder: Path, progress: Progress = silent) -> list[str]:
    """Write tasks of lmms-eval, one for each condition, and the group of them; return notes for the user."""
    left_out, names = list[str](), dict[str, str]()
    group, taken, count = f"holdfast_{slug(subject.name).lower()}", set[str](), 0
    (folder / "data").mkdir()
    with ExitStack() as files:
        writers: dict[str, pq.ParquetWriter] = {}
        for count, (picture, asked) in enumerate(_asked(subject, left_out, progress), start=1):  # noqa: B007
            condition = asked["condition"]
            if condition not in writers:
                names[condition] = name = free_name(slug(condition), taken, ignore_case=True)
                path = folder / "data" / f"{name}.parquet"
                writers[condition] = files.enter_context(pq.ParquetWriter(path, _SCHEMA))
                about = {"file": json.dumps(f"data/{name}.parquet"), "name": json.dumps(f"{group}_{name}")}
                write_atomic(folder / f"{group}_{name}.yaml", rendered("lmms_task.yaml.j2", **about).encode())
            row = asked | {"image": {"bytes": picture.image, "path": None}}
            writers[condition].write_table(pa.Table.from_pylist([row], _SCHEMA))
    members = json.dumps([f"{group}_{name}" for name in sorted(names.values())])
    write_atomic(folder / f"{group}.yaml", f"group: {json.dumps(group)}\ntask: {members}\n".encode())
    write_atomic(folder / "utils.py", (TEMPLATES / "lmms_utils.py.txt").read_bytes())
    return [f"{count} questions; in the folder: python -m lmms_eval --include_path . --tasks {group}", *left_out]


def _asked(
    subject: ExportSubject, left_out: list[str], progress: Progress
) -> Iterator[tuple[ExportedPicture, dict[str, Any]]]:
    """Yield each image with its question; all renderings of an image offer the same options in the same order."""
    if len(subject.classes) < 2:
        raise UserError("there is nothing to choose from: the dataset has one class only")
    count = 0
    for count, picture in enumerate(pictures(subject, left_out, progress), start=1):  # noqa: B007
        sample = picture.sample
        options = _options(sample, subject.classes)
        yield picture, {
            "question": QUESTION, "options": [plain(shown(name)) for name in options],
            "answer": LETTERS[options.index(sample.label)], "letters": LETTERS[: len(options)],
            "label": plain(sample.label), "condition": plain(sample.condition), "sample_id": plain(sample.sample_id),
            "source_id": plain(sample.source_id),
        }  # fmt: skip
    if not count:
        raise UserError(f"none of the {len(subject.samples)} images can be read")


def _options(sample: Sample, classes: tuple[str, ...]) -> list[str]:
    """Return the classes in an order drawn by the image's name; of more than 26, the truth and 25 others."""
    rng = generator(0, sample.source_id, "options of a task")
    others = [classes[place] for place in rng.permutation(len(classes)) if classes[place] != sample.label]
    options = [sample.label, *others[: len(LETTERS) - 1]]
    return [options[place] for place in rng.permutation(len(options))]
