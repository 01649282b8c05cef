"""The loop: learns, resumes to the same numbers after a kill, stops for NaN and for the clock."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from training_job import EPOCHS, batches, loss, net, numbers_of, train

from holdfast.core.errors import UserError
from holdfast.training import DivergedError, Epoch, TrainingOptions, checkpoint, fit, one_cycle


def test_it_learns_and_averages() -> None:
    fitted = train(None)
    assert fitted.complete and len(fitted.history) == EPOCHS
    assert fitted.history[-1]["loss"] < 0.7 * fitted.history[0]["loss"]
    assert not fitted.model.training
    numbers = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
    correct = (fitted.model(numbers).argmax(1) == numbers[:, :3].argmax(1)).float().mean()
    assert correct > 0.85


def test_the_average_is_the_average() -> None:
    """Against a hand-kept exponential average of the weights after every step."""
    model = net()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[torch.Tensor] = []
    # The weights that a step starts from are those that the step before ended with.
    options = TrainingOptions(epochs=1, steps_per_epoch=6, average=0.8, on_cpu=True, clip=None)

    def watched(module: torch.nn.Module, batch: object) -> dict[str, torch.Tensor]:
        seen.append(module[4].weight.detach().clone())
        return dict(loss(module, batch))  # type: ignore[arg-type]

    fitted = fit(model, batches, watched, optimiser, options)
    after = [*seen[1:], model[4].weight.detach()]
    expected = after[0]
    for weights in after[1:]:
        expected = 0.8 * expected + 0.2 * weights
    torch.testing.assert_close(fitted.model[4].weight.detach(), expected)


def test_compiled_steps_leave_the_module_as_it_is(tmp_path: Path) -> None:
    """Compilation itself is torch's; weights keep their names, and checkpoints of both kinds are the same."""
    with torch.compiler.set_stance("force_eager"):
        train(tmp_path, epochs=EPOCHS, compile=True, time_limit=1e-9)
        assert numbers_of(train(tmp_path, compile=True)) == numbers_of(train(None))


def test_a_checkpoint_is_of_its_moment_and_what_fails_is_raised(tmp_path: Path) -> None:
    weight, momentum = torch.ones(3), torch.ones(3)
    state = {"state": {0: {"momentum": momentum}}}
    writer = checkpoint.CheckpointWriter()
    with writer:
        writer.save(tmp_path, checkpoint.Checkpoint({"weight": weight}, {}, state, {"epochs_done": 1}))
        weight.zero_()
        momentum.zero_()
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.weights["weight"].tolist() == [1, 1, 1]
    assert found.optimiser["state"][0]["momentum"].tolist() == [1, 1, 1]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), checkpoint.CheckpointWriter() as other:
        other.save(tmp_path / "file", checkpoint.Checkpoint({"weight": weight}, {}, state, {"epochs_done": 2}))


def test_the_global_generator_is_left_alone_and_does_not_matter() -> None:
    first = train(None)
    torch.manual_seed(99)
    state = torch.random.get_rng_state()
    model = net()
    torch.random.set_rng_state(state)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    options = TrainingOptions(epochs=EPOCHS, steps_per_epoch=20, seed=1, average=0.9, on_cpu=True)
    second = fit(model, batches, loss, optimiser, options, schedule=one_cycle)
    assert numbers_of(first) == numbers_of(second)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert numbers_of(train(None, seed=2)) != numbers_of(first)


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Read what a job prints up to these words; returns what follows them."""
    assert process.stdout is not None
    while words not in (line := process.stdout.readline()):
        assert line, "the job ended by itself"
    return line.partition(words)[2]


def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    job = [sys.executable, str(Path(__file__).with_name("training_job.py")), str(tmp_path)]
    with ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(job, stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        # The callback runs before its epoch is saved, so a kill costs one epoch of work.
        heard(process, "epoch 0")
        process.send_signal(signal.SIGSTOP)
        assert not list(tmp_path.glob("epoch-*")), "a run that is killed now begins again"
        process.send_signal(signal.SIGCONT)
        heard(process, "epoch 2")
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    called: list[int] = []
    again = train(tmp_path, lambda epoch: called.append(epoch.number))
    assert 0 < min(called) <= 2 and numbers_of(again) == numbers_of(train(None))


@pytest.mark.slow
def test_two_live_attempts_leave_each_other_alone_and_a_third_goes_on(tmp_path: Path) -> None:
    """One sleeps while another gets ahead, wakes, and writes where the other is."""
    job = [sys.executable, str(Path(__file__).with_name("training_job.py")), str(tmp_path)]
    with ExitStack() as stack:

        def begun() -> subprocess.Popen[str]:
            process = stack.enter_context(subprocess.Popen(job, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)  # else one that is stopped would be waited for, should a line below fail
            return process

        first = begun()
        heard(first, "epoch 1")
        first.send_signal(signal.SIGSTOP)
        second = begun()
        heard(second, "epoch 4")  # so that the checkpoint of the fourth epoch, number 3, is written
        second.send_signal(signal.SIGSTOP)
        first.send_signal(signal.SIGCONT)
        heard(first, "epoch 3")  # it has written, or found written, what is behind it
        first.kill()
        newest = max(one.name for one in tmp_path.glob("epoch-*"))
        assert newest >= "epoch-00004", "it has deleted a later epoch than its own"
        called: list[int] = []
        third = numbers_of(train(tmp_path, lambda epoch: called.append(epoch.number)))
        second.send_signal(signal.SIGCONT)
        assert third == json.loads(heard(second, "ended in")) == numbers_of(train(None))
        assert second.wait() == 0 and min(called, default=EPOCHS) >= 4
    assert [one.name for one in tmp_path.glob("epoch-*")] == [f"epoch-{EPOCHS:05d}"]


def test_a_checkpoint_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    shared = torch.zeros(3)
    with pytest.raises(RuntimeError, match="share memory"):
        checkpoint.save(tmp_path, checkpoint.Checkpoint({"a": shared, "b": shared}, {}, {}, {"epochs_done": 1}))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_renamed_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkpoints" / "epoch-00001").mkdir(parents=True)

    def refuse(*paths: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "rename", refuse)
    checkpoint.remove(tmp_path / "checkpoints")
    assert not list(tmp_path.iterdir())


def test_half_written_checkpoints_do_not_count(tmp_path: Path) -> None:
    whole = numbers_of(train(tmp_path))
    (kept,) = tmp_path.iterdir()
    assert kept.name == f"epoch-{EPOCHS:05d}"
    (tmp_path / ".unfinished-1").mkdir()
    (tmp_path / ".unfinished-1" / "weights.safetensors").write_bytes(b"half")
    called: list[int] = []
    again = train(tmp_path, lambda epoch: called.append(epoch.number))
    assert numbers_of(again) == whole and not called


def test_another_training_is_not_resumed(tmp_path: Path) -> None:
    train(tmp_path, epochs=1)
    with pytest.raises(UserError, match=r"another training \(epochs 1\)"):
        train(tmp_path, epochs=2)
    other = torch.nn.Linear(8, 3)
    options = TrainingOptions(1, 20, seed=1, average=0.9, on_cpu=True, checkpoints=tmp_path)
    with pytest.raises(UserError, match="another model"):
        fit(other, batches, loss, torch.optim.SGD(other.parameters()), options)


def test_reading_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    train(tmp_path, epochs=1)

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    torch.save({"optimiser": Bomb(), "progress": {}}, tmp_path / "epoch-00001" / checkpoint.STATE)
    with pytest.raises(UserError, match="epoch-00001 cannot be read"):
        train(tmp_path, epochs=1)
    assert not (tmp_path / "exploded").exists()


def test_nan_stops_with_a_reason_and_a_sound_checkpoint(tmp_path: Path) -> None:
    model = net()
    options = TrainingOptions(5, 4, on_cpu=True, checkpoints=tmp_path)
    steps = iter(range(100))

    def turns(module: torch.nn.Module, batch: object) -> dict[str, torch.Tensor]:
        values = dict(loss(module, batch))  # type: ignore[arg-type]
        return {name: value * (float("nan") if next(steps) > 16 else 1) for name, value in values.items()}

    with pytest.raises(DivergedError, match="loss became nan in epoch 2"):
        fit(model, batches, turns, torch.optim.SGD(model.parameters(), lr=0.1), options)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found.progress["epochs_done"] == 2
    assert all(tensor.isfinite().all() for tensor in found.weights.values() if tensor.is_floating_point())


def test_a_time_limit_pauses_and_the_next_call_goes_on(tmp_path: Path) -> None:
    paused = train(tmp_path, lambda epoch: time.sleep(0.5), time_limit=1.2)
    assert not paused.complete
    assert 1 <= len(paused.history) < EPOCHS
    assert numbers_of(train(tmp_path)) == numbers_of(train(None))


def test_finish_in_time_brings_the_rate_down(tmp_path: Path) -> None:
    rates: list[float] = []
    model = net()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)

    def noting(module: torch.nn.Module, batch: object) -> dict[str, torch.Tensor]:
        rates.append(optimiser.param_groups[0]["lr"])
        time.sleep(0.002)
        return dict(loss(module, batch))  # type: ignore[arg-type]

    options = TrainingOptions(
        1000, 50, on_cpu=True, checkpoints=tmp_path, time_limit=1.0, finish_in_time=True, average=0.5
    )
    fitted = fit(model, batches, noting, optimiser, options, schedule=one_cycle)
    assert fitted.complete and len(fitted.history) < 1000
    assert max(rates) > 0.9 and rates[-1] < 0.1
    calls = len(rates)
    again = fit(net(), batches, noting, torch.optim.SGD(net().parameters(), lr=1.0), options, schedule=one_cycle)
    assert again.complete and len(rates) == calls, "a run that ended for time is complete"


def test_the_callback_sees_the_model_and_adds_to_the_history(tmp_path: Path) -> None:
    def validate(epoch: Epoch) -> dict[str, float]:
        assert not epoch.model.training
        return {"validation": epoch.metrics["accuracy"] + epoch.number}

    fitted = train(tmp_path, validate, epochs=2)
    assert [row["validation"] - row["accuracy"] for row in fitted.history] == pytest.approx([0, 1])
    assert numbers_of(train(tmp_path, validate, epochs=2))["history"] == numbers_of(fitted)["history"]


def test_bfloat16_is_used_where_asked() -> None:
    model = net()
    kinds = set()

    def noting(module: torch.nn.Module, batch: object) -> dict[str, torch.Tensor]:
        kinds.add(module[:1](batch[0]).dtype)  # type: ignore[index]
        return dict(loss(module, batch))  # type: ignore[arg-type]

    for precision in ("bfloat16", "float32"):
        options = TrainingOptions(1, 2, precision=precision, on_cpu=True)
        fit(model, batches, noting, torch.optim.SGD(model.parameters(), lr=0.1), options)
    assert kinds == {torch.bfloat16, torch.float32}
    assert next(model.parameters()).dtype == torch.float32
    with pytest.raises(UserError, match="precision must be"):
        fit(model, batches, loss, torch.optim.SGD(model.parameters()), TrainingOptions(1, 1, precision="half"))


def test_no_batches_is_an_error() -> None:
    model = net()
    with pytest.raises(UserError, match="no batches"):
        fit(model, lambda epoch: [], loss, torch.optim.SGD(model.parameters()), TrainingOptions(1, 1, on_cpu=True))


def test_one_cycle() -> None:
    assert one_cycle(0) == pytest.approx(0.04)
    assert one_cycle(0.15) == pytest.approx(1)
    assert one_cycle(1) == pytest.approx(0)
    assert one_cycle(1.2) == pytest.approx(0)
    rates = [one_cycle(step / 100) for step in range(101)]
    assert all(later > earlier for earlier, later in itertools.pairwise(rates[:16]))
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[15:]))
