"""What a task is: one object that holds everything in which one kind of question differs from another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.errors import UserError

if TYPE_CHECKING:
    from holdfast.core.types import Collection, Sample

FEATURES: Mapping[str, str] = MappingProxyType({
    "fast": "the fast pass",
    "search": "the search for the first failing severity",
    "attacks": "an attack on the model",
    "adaptation": "adaptation to the tested images",
    "native-depth": "more than 8 bits a channel",
    "rounds": "stopping as soon as the answer is clear",
    "protocol": "a declared protocol",
    "expect-accuracy": "a check of the accuracy on originals",
    "painting": "a generated background",
    "threshold": "a threshold",
})  # fmt: skip
"""What a task may support, in the words of its error message."""


class Shown(Protocol):
    """An image under its condition, on its way to a model."""

    @property
    def sample(self) -> Sample:
        """The sample that the image was made from."""

    @property
    def condition(self) -> Any:
        """The condition, a ``holdfast.scenarios.Condition``."""


class Task:
    """A kind of question that models are asked about images.

    A task that ``eval`` runs defines ``recognises``, ``load``, ``ask`` and ``rows``; ``outcome`` says which answers are
    successes, and every statistic of success is computed from it. ``holdfast.testing.check_task`` checks a task. Tasks
    are sent to other processes, so they hold no state.

    Attributes:
        name: the value of the column ``task``.
        title: what is asked, in a few words, such as ``images with several labels``.
        protocol: the value of the column ``protocol``; empty if rows of the task have several.
        tables: tables below ``details/`` for what does not fit into the one table; each has a column ``row_id``.
        required: the one of these tables in which every answered row has a row.
        supports: what the task can do of ``FEATURES``; the rest is refused with one message.
        unit: what ``outcome`` has an element for: ``image``, ``object``, ``label``.
        average: ``macro`` if every class weighs the same, ``micro`` if every unit does.
        success: what one success is, in the words of a table's heading, such as ``right`` or ``found``.
        hub: what Hugging Face calls such a task, such as ``image-classification``.
        sections: names of the report's sections (``holdfast.registry.sections``) about rows of this task.
        calls: methods of ``Results`` to try first, as ``repr`` shows them.
        results: name of a table → function of ``Results`` that returns it; a bundle holds these tables.
        tracked: name of a table of ``results`` → its columns, each with the columns of its interval, that experiment
            trackers record.
        evaluation: how ``eval`` makes the rows, ``"module:class"`` (``holdfast.pipeline.evaluate.evaluating``); empty
            for a task that has a verb of its own.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    protocol: str = ""
    tables: ClassVar[Mapping[str, pa.Schema]] = MappingProxyType({})
    required: ClassVar[str] = ""
    supports: ClassVar[frozenset[str]] = frozenset({"painting"})
    unit: ClassVar[str] = "image"
    average: ClassVar[Literal["macro", "micro"]] = "micro"
    success: ClassVar[str] = "right"
    hub: ClassVar[str] = "other"
    sections: ClassVar[tuple[str, ...]] = ("outcomes",)
    calls: ClassVar[tuple[str, ...]] = (".verdicts()", ".accuracy()", ".drops()")
    results: ClassVar[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({
        "accuracy": lambda run: run.accuracy(), "drops": lambda run: run.drops()
    })  # fmt: skip
    tracked: ClassVar[Mapping[str, Mapping[str, tuple[str, str]]]] = MappingProxyType({
        "accuracy": {"accuracy": ("low", "high")}, "drops": {"drop": ("low", "high")}
    })  # fmt: skip
    evaluation: ClassVar[str] = "holdfast.pipeline.evaluate.evaluating:Evaluating"

    def recognises(self, collection: Collection, models: Sequence[str]) -> bool:
        """Return whether a command with this data and these names of models asks for the task."""
        return False

    def truth(self, sample: Sample) -> str:
        """Return a hash of the truth for the row ids; empty if the truth is the sample's label, which they contain."""
        return ""

    def load(self, name: str, *, device: str, collection: Collection) -> Any:
        """Return the model of a name; it has the attributes ``name`` and ``fingerprint``."""
        raise NotImplementedError(f"the task {self.name} does not load models")

    def ask(self, model: Any, images: Sequence[Any]) -> Any:
        """Return the answer to each image, HWC uint8; ``model.model`` is what ``load`` returned."""
        raise NotImplementedError(f"the task {self.name} does not ask models")

    def rows(self, model: Any, shown: Sequence[Shown], answers: Any) -> list[dict[str, Any]]:
        """Return the outcome columns of each answer, such as ``prediction``, ``correct`` and ``status``.

        Rows of a table in ``tables`` are a list under the table's name.
        """
        raise NotImplementedError(f"the task {self.name} makes no rows")

    def units(self, rows: pa.Table, details: Callable[[str], pa.Table]) -> pa.Table:
        """Return a row for everything that ``outcome`` judges, with the columns of the one table.

        Args:
            rows: rows of this task in the one table.
            details: returns a table of ``tables`` by name.

        Returns:
            By default, the rows themselves. A column ``unit_id`` names units that are several in an image.
        """
        return rows

    def outcome(self, units: pa.Table) -> NDArray[np.float64]:
        """Return the success of each answered unit, 0 to 1; by default, whether it is ``correct``."""
        return np.asarray(units["correct"].fill_null(False).to_numpy(zero_copy_only=False), np.float64)

    def chance(self, units: pa.Table) -> float | None:
        """Return the mean success of answers that ignore the image; None, the default, if it is unknown.

        Without it no verdict says that a model sees the object: success on other backgrounds might be guessing.
        """
        return None

    def broken(self, rows: Callable[[], Any], details: Callable[[str], Any]) -> Mapping[str, str]:
        """Return model → why its answers to unchanged images look like those of a broken model.

        Args:
            rows: returns the originals' rows of the one table, as an Arrow dataset.
            details: returns the originals' rows of a table of ``tables``, as an Arrow table.
        """
        return {}

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.title}>"


def check_supported(task: Task, asked: Mapping[str, str]) -> None:
    """Raise a UserError if a command asks for something that a task cannot do.

    Args:
        task: the task.
        asked: a name of ``FEATURES`` → the option or name that asks for it, such as ``--fast``.
    """
    for feature, option in asked.items():
        if feature not in task.supports:
            raise UserError(
                f"{option}: {FEATURES[feature]} is not supported for {task.title} (task {task.name}); leave it out"
            )
