"""The kernel on a table of its own: what is owed, dropped, kept and refused, with a worker that squares numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sharded_world import Carried

from holdfast.core.errors import MachineError, SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.pipeline.jobs import execute as execution
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Job, Plan, Scope, plan
from holdfast.pipeline.jobs.progress import Summary
from holdfast.pipeline.jobs.rows import answer_each
from holdfast.store import Parts

TABLE = pa.schema(
    [("row_id", pa.string()), ("sample_id", pa.string()), ("power", pa.int32()), ("value", pa.int64()),
     ("status", pa.string()), ("error", pa.string())]
)  # fmt: skip
DIGITS = pa.schema([("row_id", pa.string()), ("digit", pa.int32())])


@dataclass(frozen=True)
class Numbers:
    """A job per number, a part per power."""

    count: int
    powers: tuple[int, ...] = (2,)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Job[int, int]]:
        return (Job(number, self.powers) for number in range(self.count))


@dataclass
class Powers:
    """The worker; ``faults`` maps numbers to what is raised for them."""

    version: str = "1"
    faults: dict[int, Exception] = field(default_factory=dict)
    name: str = "powers"

    def load(self) -> dict[str, str]:
        return {"version": self.version}

    def fingerprints(self, resources: dict[str, str]) -> list[str]:
        return [resources["version"]]

    def run(self, resources: dict[str, str], jobs: Sequence[Job[int, int]]) -> Iterator[Any]:
        for job in jobs:
            answers = answer_each(lambda powers, number=job.item: self._raised(number, powers), job.parts)
            for power, row_id, answer in zip(job.parts, job.ids, answers, strict=True):
                row = {"row_id": row_id, "sample_id": str(job.item), "power": power}
                if isinstance(answer, SampleError):
                    yield row | {"status": "error", "error": str(answer)}
                else:
                    digits = [{"row_id": row_id, "digit": int(digit)} for digit in str(answer)]
                    yield row | {"status": "ok", "value": answer, "digits": digits}

    def _raised(self, number: int, powers: Sequence[int]) -> list[int]:
        if number in self.faults:
            raise self.faults[number]
        return [number**power for power in powers]


def planned(folder: Path, jobs: Numbers, *, version: str = "1", **options: Any) -> Plan[int, int]:
    def ids(job: Job[int, int]) -> list[str]:
        return [fingerprint([job.item, power, version])[:32] for power in job.parts]

    digits = Parts(folder / "digits", DIGITS, ("row_id", "digit"))
    return plan(Parts(folder / "table", TABLE), jobs, ids, details={"digits": digits}, **options)


def made(owed: Plan[int, int], worker: Powers | None = None, **options: Any) -> Summary:
    return execute(owed, worker or Powers(), step="powers", **{"size": 3, **options})


def values(folder: Path) -> dict[tuple[str, int], int | None]:
    rows = Parts(folder / "table", TABLE).rows().to_pylist()
    assert len({row["row_id"] for row in rows}) == len(rows)
    answered = {row["row_id"] for row in rows if row["status"] == "ok"}
    assert set(Parts(folder / "digits", DIGITS).stored_ids()) == answered
    return {(row["sample_id"], row["power"]): row["value"] for row in rows}


@pytest.mark.parametrize("executor", [None, Carried()])
def test_only_missing_rows_are_made(executor: Any, tmp_path: Path) -> None:
    summary = made(planned(tmp_path, Numbers(10)), executor=executor, known={"version": "1"})
    assert (summary.rows, summary.already, summary.errors) == (10, 0, 0)
    again = made(planned(tmp_path, Numbers(12, (2, 3))), executor=executor, known={"version": "1"})
    assert (again.rows, again.already) == (14, 10)
    assert values(tmp_path) == {(str(number), power): number**power for number in range(12) for power in (2, 3)}


def test_a_scope_drops_rows_that_are_no_longer_planned_with_their_details(tmp_path: Path) -> None:
    made(planned(tmp_path, Numbers(6, (2, 3))))
    squares = Scope(pc.field("power") == 2, ("sample_id",), lambda row: int(row["sample_id"]) < 4)
    owed = planned(tmp_path, Numbers(6), version="2", scope=squares)
    assert (owed.owed, owed.already, owed.count) == (6, 0, 6)
    assert set(values(tmp_path)) == {(str(number), 3) for number in range(6)} | {("4", 2), ("5", 2)}


def test_details_of_a_killed_command_are_dropped(tmp_path: Path) -> None:
    Parts(tmp_path / "digits", DIGITS).write(pa.Table.from_pylist([{"row_id": "lost", "digit": 1}], schema=DIGITS))
    made(planned(tmp_path, Numbers(2)))
    assert len(values(tmp_path)) == 2


def test_planned_errors_are_retried_and_others_stay(tmp_path: Path) -> None:
    faults: dict[int, Exception] = {number: ValueError("odd") for number in (1, 3, 5)}
    summary = made(planned(tmp_path, Numbers(6)), Powers(faults=faults))
    assert summary.trouble == {"error: ValueError: odd": 3} and summary.examples == {"error: ValueError: odd": "1"}
    assert planned(tmp_path, Numbers(6)).owed == 0
    owed = planned(tmp_path, Numbers(4), retry=True)
    assert (owed.owed, owed.already, owed.count) == (2, 2, 2)
    assert [job.item for shard in owed.shards(9) for job in shard] == [1, 3]
    made(owed)
    assert values(tmp_path) == {(str(number), 2): None if number == 5 else number**2 for number in range(6)}


@pytest.mark.parametrize(
    ("fault", "raised"),
    [(UserError("no"), UserError), (MemoryError(), MachineError), (OSError(28, "full"), MachineError)],
)
def test_finished_rows_are_kept_here_and_shards_stay_whole_elsewhere(
    fault: Exception, raised: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(raised):
        made(planned(tmp_path / "here", Numbers(6)), Powers(faults={4: fault}))
    assert values(tmp_path / "here") == {(str(number), 2): number**2 for number in range(4)}
    with pytest.raises(raised):
        made(planned(tmp_path / "there", Numbers(6)), Powers(faults={1: fault}), executor=Carried())
    assert not [name for name, _ in values(tmp_path / "there") if name in ("0", "1", "2")]
    for folder in ("here", "there"):
        made(planned(tmp_path / folder, Numbers(6)))
        assert len(values(tmp_path / folder)) == 6


def test_a_worker_that_loads_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="powers is not the same on a worker"):
        made(planned(tmp_path, Numbers(6)), Powers("2"), executor=Carried(), known={"version": "1"})
    assert not values(tmp_path)


def test_a_long_shard_is_written_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_PAUSES", (-1.0, -1.0))
    made(planned(tmp_path, Numbers(5)), size=5)
    assert len(values(tmp_path)) == len(Parts(tmp_path / "table", TABLE).paths()) == 5


def test_a_worker_may_yield_tables_and_notes_and_get_packed_jobs(tmp_path: Path) -> None:
    class Many(Powers):
        def run(self, resources: Any, jobs: Any) -> Iterator[Any]:
            assert jobs["ids"] == [()] * len(jobs["numbers"])
            rows = [
                {"row_id": fingerprint([number, 2, "1"])[:32], "sample_id": str(number), "power": 2, "status": status}
                for number, status in zip(jobs["numbers"], ("ok", "skipped", "ok"), strict=True)
            ]
            yield pa.Table.from_pylist(rows, schema=TABLE)
            yield Summary(notes=["squared at once (3 of them)"])

    def pack(jobs: Sequence[Job[int, int]]) -> dict[str, Any]:
        return {"numbers": [job.item for job in jobs], "ids": [job.ids for job in jobs]}

    parts = Parts(tmp_path / "table", TABLE)
    owed = plan(parts, Numbers(6), lambda job: [fingerprint([job.item, 2, "1"])[:32]])
    summary = made(owed, Many(), pack=pack)
    assert summary.rows == parts.count() == 6
    assert summary.notes == ["squared at once (3 of them)"] and summary.trouble == {"skipped: None": 2}
