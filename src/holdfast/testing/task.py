"""The contract suites of tasks and run hooks: everything that an author may forget fails here, with a sentence."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast import registry
from holdfast.core.hooks import BegunRun, Hook
from holdfast.core.schema import PREDICTIONS
from holdfast.core.tasks import FEATURES, Task
from holdfast.core.types import Sample
from holdfast.data.images import ArrayImage
from holdfast.scenarios import Condition


@dataclass(frozen=True)
class _Shown:
    sample: Sample
    condition: Condition


def check_task(
    task: Task,
    *,
    model: Any = None,
    images: Sequence[Any] = (),
    labels: Sequence[str] = (),
    registered: bool = True,
) -> None:
    """Check that a task is complete: its name, what it supports, its tables, rows and outcome.

    Args:
        task: the task.
        model: what its ``load`` returns; with ``images``, it is asked.
        images: images HWC uint8.
        labels: the true label of each image.
        registered: whether the entry point is checked.

    Raises:
        AssertionError: says what is missing and where it belongs.
    """
    name = task.name
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name), (
        f"task {name!r} needs a name of lower-case words joined by hyphens"
    )
    assert task.title, f"task {name} needs a title: what is asked, in a few words"
    for feature in task.supports:
        assert feature in FEATURES, f"task {name} supports {feature!r}, which is none of {', '.join(FEATURES)}"
    assert task.average in ("macro", "micro"), f"task {name}: average must be macro or micro, not {task.average!r}"
    for table, schema in task.tables.items():
        assert "row_id" in schema.names, f"task {name}: table {table} needs a column row_id"
        assert table not in PREDICTIONS.names, f"task {name}: table {table} has the name of a column of the one table"
    assert not task.tables or task.required in task.tables, (
        f"task {name}: required must name the table in which every answered row has a row"
    )
    _check_travels(task)
    if registered:
        known = name in registry.tasks and registry.tasks.get(name)
        assert known is task, (
            f"task {name} is not registered, or another package has the name; pyproject.toml needs "
            f'[project.entry-points."holdfast.tasks"] with {name} = "MODULE:ATTRIBUTE", and the package has to be '
            "installed"
        )
    if task.evaluation:
        registry.resolved(task.evaluation)
        for method in ("recognises", "ask", "rows"):
            assert getattr(type(task), method) is not getattr(Task, method), f"task {name} must define {method}"
    if len(images):
        _check_answers(task, model, images, labels)


def _check_travels(task: Task) -> None:
    try:
        pickle.dumps(task)
    except Exception as error:
        if "local object" in str(error):  # a class in a function, such as one of a test
            return
        raise AssertionError(
            f"task {task.name} is sent to other processes, but cannot be pickled ({error}): keep no open files, locks "
            "or models in it"
        ) from error


def _check_answers(task: Task, model: Any, images: Sequence[Any], labels: Sequence[str]) -> None:
    """Ask a model, make rows, and judge them."""
    for attribute in ("name", "fingerprint"):
        assert getattr(model, attribute, ""), f"task {task.name}: the model that load returns needs a {attribute}"
    shown = [
        _Shown(Sample(str(number), label, ArrayImage(image)), Condition("original"))
        for number, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    tested = SimpleNamespace(model=model, labels=None)
    answers = task.ask(tested, list(images))
    assert len(answers) == len(images), f"task {task.name}: ask gave {len(answers)} answers to {len(images)} images"
    rows = task.rows(tested, shown, answers)
    assert len(rows) == len(images), f"task {task.name}: rows made {len(rows)} rows of {len(images)} answers"
    details: dict[str, list[dict[str, Any]]] = {table: [] for table in task.tables}
    answered = []
    for number, (row, each) in enumerate(zip(rows, shown, strict=True)):
        own = dict(row)
        for table, schema in task.tables.items():
            lines = own.pop(table, None)
            assert lines or table != task.required, f"task {task.name}: a row lacks its details, a list under {table!r}"
            for line in lines or ():
                extra = set(line) - set(schema.names)
                assert not extra, f"task {task.name}: {table} has no column {', '.join(sorted(extra))}"
            details[table] += [line | {"row_id": str(number)} for line in lines or ()]
        extra = set(own) - set(PREDICTIONS.names)
        assert not extra, f"task {task.name}: the one table has no column {', '.join(sorted(extra))}; use tables"
        if type(task).outcome is Task.outcome:
            assert own.get("correct") is not None, f"task {task.name}: rows must fill correct, or define outcome"
        answered.append({"status": "ok"} | own | {"row_id": str(number), "task": task.name, "label": each.sample.label,
                     "sample_id": str(number), "source_id": str(number)})  # fmt: skip
    table = pa.Table.from_pylist(answered, PREDICTIONS)
    units = task.units(table, lambda name: pa.Table.from_pylist(details[name], task.tables[name]))
    success = np.asarray(task.outcome(units), np.float64)
    inside = success.shape == (len(units),) and bool(((success >= 0) & (success <= 1)).all())
    assert inside, f"task {task.name}: outcome must be {len(units)} numbers from 0 to 1, one for each {task.unit}"
    chance = task.chance(units)
    assert chance is None or 0 <= chance <= 1, f"task {task.name}: chance must be a number from 0 to 1, not {chance}"


def check_hook(hook: Hook, *, registered: bool = True) -> None:
    """Check that a run hook is complete.

    Args:
        hook: the hook.
        registered: whether the entry point is checked.

    Raises:
        AssertionError: says what is wrong.
    """
    name = type(hook).__name__
    assert isinstance(hook, Hook), f"hook {name} must derive from holdfast.core.hooks.Hook, and be an instance"
    known = [method for method in vars(Hook) if method.startswith("on_")]
    for method in dir(hook):
        if method.startswith("on_"):
            assert method in known, f"hook {name}: {method} is never called; the methods are {', '.join(known)}"
    assert any(getattr(type(hook), method) is not getattr(Hook, method) for method in known), (
        f"hook {name} defines none of {', '.join(known)}"
    )
    for method in known:
        ours, theirs = (inspect.signature(getattr(each, method)).parameters for each in (type(hook), Hook))
        assert len(ours) == len(theirs), f"hook {name}: {method} takes {', '.join(theirs)}"
    if registered:
        assert any(registry.hooks.get(each) is hook for each in registry.hooks), (
            f'hook {name} is not registered; pyproject.toml needs [project.entry-points."holdfast.hooks"] with '
            'NAME = "MODULE:ATTRIBUTE", and the package has to be installed'
        )
    with TemporaryDirectory() as folder:
        run = BegunRun(Path(folder), Task(), SimpleNamespace(), {"model": "fingerprint"}, SimpleNamespace())
        try:
            hook.on_run_begin(run)
        except Exception as error:
            raise AssertionError(f"hook {name}: on_run_begin fails on an empty run: {error!r}") from error
