"""People as the oracle inside a walk: rounds of questions, pending rows, and walks that continue."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.data import load_collection
from made_votes import make_votes

WALK = {"models": ["embedded:resnet_rho95"], "generator": "pixel:", "steps": 4, "step_size": 0.01, "random_walk": False,
        "deterministic": True, "device": "cpu"}  # fmt: skip
DATA = "diorama:test?n=3"


def vote(folder: Path, out: Path, *, no: str = "never", people: int = 5) -> None:
    """Five people accept every image of a round, but for the files whose name ends in ``no``."""
    rows = [
        {
            "sample_id": sample.sample_id, "person": person, "label": sample.label, "asked": sample.label,
            "pixels_sha256": array_sha256(sample.image.load()),
            "answers": {"shows": "no" if sample.sample_id.endswith(no) else "yes"},
        }
        for sample in load_collection(str(folder)).samples
        for person in range(people)
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    pq.write_table(make_votes(rows).to_arrow(), out / "votes.parquet")


def walk(out: Path, votes: Path, **more) -> pd.DataFrame:
    results = holdfast.perturb(DATA, oracle=f"human:{votes}?every=2", out=out, **WALK | more)
    rows = results.rows().to_pandas().astype({"condition": str, "status": str})
    return rows.set_index(["condition", "sample_id"]).sort_index()


def test_rounds(tmp_path: Path) -> None:
    run, votes = tmp_path / "run", tmp_path / "votes"
    rows = walk(run, votes)
    assert set(rows.loc["original", "status"]) == {"ok"}
    assert set(rows.loc["perturbed", "status"]) == set(rows.loc["reconstruction", "status"]) == {"pending"}
    first = sorted(path.name[-7:-4] for path in (run / "people" / "round-1").rglob("*.png"))
    assert first == ["000", "000", "000", "002", "002", "002"], "the reconstruction and step 2 of each"
    # No one has voted: nothing new is asked, and nothing is lost.
    again = walk(run, votes)
    assert set(again.loc["perturbed", "status"]) == {"pending"} and not (run / "people" / "round-2").exists()

    # One walk is rejected at step 2, the others continue to step 4, the last.
    names = sorted(path.stem for path in (run / "people" / "round-1").rglob("*002.png"))
    rejected = names[0]
    vote(run / "people" / "round-1", votes / "round-1", no=rejected)
    rows = walk(run, votes)
    assert sorted(rows.loc["perturbed", "status"]) == ["pending", "pending", "rejected"]
    second = [path.name[-7:-4] for path in (run / "people" / "round-2").rglob("*.png")]
    assert second == ["004", "004"]

    vote(run / "people" / "round-2", votes / "round-2", no=sorted((run / "people" / "round-2").rglob("*.png"))[0].stem)
    rows = walk(run, votes)
    assert sorted(rows.loc["perturbed", "status"]) == ["ok", "ok", "rejected"]
    assert set(rows.loc["reconstruction", "oracle_accepted"]) == {True}
    details = pq.read_table(run / "details" / "walks").to_pandas()
    assert sorted(zip(details["steps"], details["stop"].astype(str), strict=True)) == [
        (0, "first_rejected"), (2, "rejected"), (4, "budget"),
    ]  # fmt: skip
    fmr = holdfast.open_run(run).fmr(measures=True).set_index(["label", "measure"])
    assert fmr.loc[("", "validation_rate"), "estimate"] == pytest.approx(2 / 3)
    # Finished: the same command has nothing to do.
    before = {path: path.stat().st_mtime_ns for path in (run / "predictions").glob("*.parquet")}
    walk(run, votes)
    assert {path: path.stat().st_mtime_ns for path in (run / "predictions").glob("*.parquet")} == before


def test_too_few_votes_leave_a_walk_waiting(tmp_path: Path) -> None:
    run, votes = tmp_path / "run", tmp_path / "votes"
    walk(run, votes)
    vote(run / "people" / "round-1", votes / "round-1", people=2)
    rows = walk(run, votes)
    assert set(rows.loc["perturbed", "status"]) == {"pending"} and not (run / "people" / "round-2").exists()


def test_the_command_line_says_what_to_do(tmp_path: Path) -> None:
    command = ["perturb", "diorama:test?n=1", "--models", "embedded:resnet_rho95", "--generator", "pixel:", "--oracle",
               f"human:{tmp_path / 'votes'}?every=2", "--steps", "2", "--out", str(tmp_path / "run")]  # fmt: skip
    runner = CliRunner()
    assert "--deterministic" in str(runner.invoke(app, command).exception)
    assert "--no-random-walk" in str(runner.invoke(app, [*command, "--deterministic"]).exception)
    result = runner.invoke(app, [*command, "--deterministic", "--no-random-walk"])
    assert result.exit_code == 0, result.output
    assert "1 walks wait for people" in " ".join(result.output.split())


def test_bad_input(tmp_path: Path) -> None:
    (tmp_path / "votes").write_text("no folder")
    for oracle, sentence in (
        (f"human:{tmp_path / 'votes'}?every=2", "takes a folder"),
        (f"human:{tmp_path}?every=x", "whole number"),
        (f"human:{tmp_path}?evry=2", "rule, at_least and every"),
    ):
        with pytest.raises(UserError, match=sentence):
            holdfast.perturb(DATA, oracle=oracle, out=tmp_path / "run", **WALK)
