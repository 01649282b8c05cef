"""The Ray engine on a cluster of several nodes: the same results as here, whatever falls over on the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.errors import HoldfastError, UserError
from holdfast.engine import LocalExecutor, open_executor, share_of
from holdfast.engine.ray_worker import Feeder, portable
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.synth.synth import SynthSpec, synth
from holdfast.store import Parts, writing
from ray_cluster import ray_cluster

ROWS = pa.schema([("row_id", pa.string())])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(nodes=2) as found:
        yield found


@pytest.fixture
def engine(cluster: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """An executor on the cluster, by its options."""
    made = []

    def make(**options: Any) -> Any:
        made.append(open_executor("ray", address=cluster.address, **{"workers": 2, "folder": tmp_path} | options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def writing_work(folder: Path, pause: float) -> Any:
    """Work that leaves a part of a table and says which process did it; it travels by value."""

    class Writes:
        def __call__(self, number: int) -> tuple[int, int, str]:
            import ray

            ids = [{"row_id": f"{number}-{row}"} for row in range(3)]
            Parts(folder, ROWS).write(pa.Table.from_pylist(ids, schema=ROWS))
            time.sleep(pause)  # between the work and its answer: who is killed now has it done again
            return number, os.getpid(), ray.get_runtime_context().get_node_id()

    return Writes()


def assert_all_there_once(folder: Path, results: list[tuple[int, int, str]], count: int) -> None:
    assert sorted(number for number, _, _ in results) == list(range(count))
    ids = Parts(folder, ROWS).rows()["row_id"].to_pylist()
    assert sorted(ids) == sorted(f"{number}-{row}" for number in range(count) for row in range(3))


def test_a_killed_worker_costs_nothing(engine: Callable[..., Any], tmp_path: Path) -> None:
    results: list[tuple[int, int, str]] = []
    killed = None
    for result in engine().map(writing_work(tmp_path / "parts", 0.2), range(24)):
        results.append(result)
        if killed is None and len({process for _, process, _ in results}) == 2:
            killed = result[1]
            os.kill(killed, signal.SIGKILL)
    assert_all_there_once(tmp_path / "parts", results, 24)
    processes = [process for _, process, _ in results]
    assert killed is not None and len(set(processes)) == 3, "someone took its place"


@pytest.mark.slow
def test_a_lost_node_costs_nothing(cluster: Any, engine: Callable[..., Any], tmp_path: Path) -> None:
    results: list[tuple[int, int, str]] = []
    lost = None
    for result in engine().map(writing_work(tmp_path / "parts", 0.2), range(24)):
        results.append(result)
        if lost is None and len({node for _, _, node in results}) == 2:
            lost = next(one for one in cluster.worker_nodes if one.node_id == result[2])
            cluster.remove_node(lost, allow_graceful=False)
    assert_all_there_once(tmp_path / "parts", results, 24)
    assert lost is not None and lost not in cluster.worker_nodes
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)


@pytest.mark.slow
def test_work_that_kills_its_workers_ends(engine: Callable[..., Any]) -> None:
    def work(number: int) -> int:
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with pytest.raises(HoldfastError, match="4 workers were lost over one piece of work"):
        list(engine().map(work, range(4)))


@pytest.mark.slow
def test_shards_are_made_as_workers_need_them(engine: Callable[..., Any]) -> None:
    made: list[int] = []

    def shards() -> Iterator[int]:
        for number in range(40):
            made.append(number)
            yield number

    ahead = []
    for done, _ in enumerate(engine().map(lambda number: number, shards())):
        ahead.append(len(made) - done)
    assert len(ahead) == 40 and max(ahead) < 12


def test_errors_arrive_as_they_were_raised(engine: Callable[..., Any]) -> None:
    def work(number: int) -> int:
        if number == 1:
            raise UserError("there is no such thing")
        return number

    executor = engine(workers=1)
    with pytest.raises(UserError) as caught:
        list(executor.map(work, [0, 1]))
    assert str(caught.value) == "there is no such thing"
    assert "in a Ray worker" in caught.value.__notes__[0], "--debug shows where"

    def shards() -> Iterator[int]:
        yield 0
        raise KeyError("in the making of a shard")

    with pytest.raises(KeyError, match="in the making"):
        list(executor.map(work, shards()))
    assert list(executor.map(work, [])) == []
    assert list(executor.map(work, [0, 3])) in ([0, 3], [3, 0]), "and the next one works"


class StubbornError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def test_an_error_that_does_not_travel_sends_its_words() -> None:
    there = portable(StubbornError("does", "not travel"))
    assert type(there) is HoldfastError and str(there) == "StubbornError: does not travel"
    assert type(portable(UserError("does"))) is UserError


@pytest.mark.slow
def test_workers_of_a_command_that_is_over_write_no_more(engine: Callable[..., Any], tmp_path: Path) -> None:
    def work(number: int) -> int:
        if number:
            (tmp_path / "begun").touch()
            time.sleep(8)  # its machine has not heard that the command is over
            (tmp_path / "late").touch()
        return number

    with pytest.raises(UserError, match="does not see"):  # what the command itself would hear, were it there
        for _ in engine(workers=1).map(work, range(2)):
            while not (tmp_path / "begun").exists():
                time.sleep(0.1)
            with writing(tmp_path):  # the next command
                pass
    assert not (tmp_path / "late").exists() and not list(tmp_path.glob(".unfinished*"))


@pytest.mark.slow
def test_a_worker_knows_its_share_of_the_machine(engine: Callable[..., Any]) -> None:
    def work(_: int) -> int:
        return share_of(1000)

    assert list(engine(workers=1).map(work, [0])) == [1000], "a node of the cluster has one core"
    assert list(engine(workers=1, cpus=0.25).map(work, [0])) == [250]


@pytest.mark.slow
def test_somebody_who_waits_for_room_is_told(
    engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import ray

    monkeypatch.setattr("holdfast.engine.ray._PATIENCE", 2.0)
    executor = engine(workers=1)
    others = [ray.remote(num_cpus=1)(Feeder).remote() for _ in range(2)]
    ray.get([one.any_begun.remote() for one in others])  # every core is taken

    def go() -> None:
        while not caplog.messages:
            time.sleep(0.1)
        for one in others:
            ray.kill(one)

    threading.Thread(target=go, daemon=True).start()
    assert list(executor.map(lambda number: number, [0])) == [0], "it continues when there is room"
    assert "each needs 1 CPU (the cluster has 2, 0 of them free); still waiting" in caplog.text


def test_a_folder_that_workers_do_not_see_is_named(engine: Callable[..., Any], tmp_path: Path) -> None:
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        mine = Path(f"/proc/self/fd/{handle}")  # of this process and no one else, as a disk is of one machine
        with pytest.raises(UserError, match=r"does not see /proc/self/fd/.* a folder that all machines share"):
            list(engine(folder=mine, workers=1).map(lambda number: number, [0]))
    finally:
        os.close(handle)
    assert not list(tmp_path.iterdir()), "no token is left"


SPEC = EvaluateSpec(
    "diorama:test?n=12", models=("embedded:resnet_rho95", "embedded:vit_rho95"),
    scenarios="original,grey,random_background,segmented", device="cpu", batch_size=4,
)  # fmt: skip


def comparable(table: pa.Table) -> list[dict[str, Any]]:
    """Rows by id, without the run's name, and decimals as far as batches of another size give the same."""
    rows = table.drop_columns(["run_id"]).sort_by("row_id").to_pylist()
    return [{k: pytest.approx(v, abs=1e-4) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def test_eval_gives_what_it_gives_here(engine: Callable[..., Any], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run, summary = evaluate(SPEC, here / "run")
    other, elsewhere = evaluate(SPEC, there / "run", executor=engine(folder=there / "run", workers=1))
    assert summary == elsewhere and summary.rows == 12 * 4 * 2
    assert comparable(other.rows()) == comparable(run.rows())
    _, again = evaluate(SPEC, there / "run", executor=LocalExecutor(1))
    assert (again.rows, again.already) == (0, 96), "what one engine has done the other does not do again"


@pytest.mark.slow
def test_synth_writes_what_it_writes_here(engine: Callable[..., Any], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    spec = SynthSpec("diorama:test?n=12", scenarios="grey,random_background", workers=1)
    synth(spec, here / "images")
    synth(spec, there / "images", executor=engine(folder=there / "images"))
    assert files(there / "images") == files(here / "images")


def files(folder: Path) -> dict[str, bytes]:
    """Everything that someone else would read; parts are cut as there are workers."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".lock", "part-"))
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "spark"}, "--engine must be one of local, ray, not spark"),
        ({"workers": "2:8"}, "--workers 2:8 is a range, which is for --engine ray"),
        ({"gpus": 1.0}, "--gpus is for --engine ray"),
        ({"address": "auto"}, "--address is for --engine ray"),
        ({"workers": "many"}, "--workers many is neither a number nor a range"),
        ({"engine": "ray", "workers": "8:2"}, "--workers 8:2 is neither"),
        ({"engine": "ray", "cpus": -1.0}, "must be 0 or more"),
        ({"engine": "ray", "gpus": 1.5}, "either a part of a GPU or whole ones"),
        ({"engine": "ray", "gpus": 0.00001}, "at least 0.001 of a core or GPU"),
        ({"engine": "ray", "address": "ray://head:10001"}, "does not work through ray://"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        open_executor(**options)


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"no Ray cluster listens at 127\.0\.0\.1:9 "):
        list(open_executor("ray", address="127.0.0.1:9").map(lambda number: number, [0]))


def test_a_cluster_that_this_machine_was_part_of_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:9")  # as `ray start` leaves it
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UserError, match=r"no Ray cluster listens at 127\.0\.0\.1:9 "):
        open_executor("ray", address="auto")


def test_ray_is_not_needed_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert open_executor("local", workers="3").width == 3
    with pytest.raises(UserError, match=r"pip install 'holdfast-vision\[ray\]'"):
        open_executor("ray")


def test_a_cluster_that_takes_too_long_to_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def init(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because of something.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UserError, match=r"a Ray cluster on this machine does not answer \(The current node timed out"):
        list(open_executor("ray", workers=1).map(str, [1]))
