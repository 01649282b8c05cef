"""``holdfast perturb`` as it is typed."""

from __future__ import annotations

import inspect
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.main import app
from holdfast.cli.runs import perturb
from holdfast.core.errors import UserError
from holdfast.pipeline.specs import WalkOptions

SCENES = 6
WALK = ["--generator", "pixel:", "--oracle", "clip:embedded", "--steps", "2", "--step-size", "0.004", "-q"]
MODEL = "embedded:resnet_rho0"


def typed(*words: str | Path) -> str:
    """What the command prints; its exceptions are the caller's. Not in a process of its own, which takes seconds."""
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_perturb_prints_counts_bounds_baselines_and_warnings(tmp_path: Path) -> None:
    data = f"diorama:test?n={SCENES}"
    out, folder = tmp_path / "run", tmp_path / "benchmark"
    said = typed("perturb", data, "--models", MODEL, *WALK, "--out", out, "--publish", folder, "--keep-latents")
    assert "label spaces: loss dataset, oracle dataset, reported accuracy dataset; images of 64 × 64" in said
    assert "warning: embedded:resnet_rho0 and its oracle" in said
    assert f"{4 * SCENES} made, 0 there already" in said
    assert re.search(rf"VR, .* 1\.000 \[0\.610, 1\.000\], {SCENES} of {SCENES}", said)
    for words in ("FMR = PA / SA", "if all rejected were wrong", "over SA of the accepted", "random walks", "a step"):
        assert words in said
    assert f"{SCENES} images published" in said
    assert f"{SCENES} images published" in typed("perturb", out, "--publish", tmp_path / "second")
    assert len(holdfast.load_collection(str(folder))) == SCENES
    results = holdfast.open_run(out)
    table = results.fmr(measures=True)
    assert set(table[table["label"] == ""]["n"]) == {SCENES} and "fmr_algorithm1" in set(table["measure"])
    assert len(results.fmr(space="all", measures=True)) == len(table)
    with pytest.raises(UserError, match="dataset or all"):
        results.fmr(space="some")
    with pytest.raises(UserError, match="no dimension is left"):  # six scenes are far too few
        typed("perturb", out, "--find-sparse", tmp_path / "mask.safetensors")


def test_an_oracle_that_accepts_nothing_is_said(tmp_path: Path) -> None:
    words = [*WALK, "--oracle", "clip:embedded?min_score=1", "--out", tmp_path / "run"]
    said = typed("perturb", f"diorama:test?n={SCENES}", "--models", MODEL, *words)
    assert f"{MODEL} has no FMR: the oracle accepted no image" in said
    assert re.search(rf"VR, .* 0 of {SCENES}", said)


def test_perturb_from_python_takes_the_options_of_walks(tmp_path: Path) -> None:
    results = holdfast.perturb(
        f"diorama:test?n={SCENES}", models=[MODEL], generator="noise:", oracle="clip:embedded", out=tmp_path / "run",
        limit=2, steps=1, step_size=0.01, loss="margin", random_walk=False,
    )  # fmt: skip
    assert results.rows().num_rows == 3 * 2
    told = results.run.spec()["parameters"]
    assert (told["loss"], told["steps"], told["generator"]) == ("margin", 1, "noise:")


def test_sparse_compares_masks(tmp_path: Path) -> None:
    import numpy as np

    from holdfast.pipeline.walk.sparse import SparseMask, write_mask

    files = [tmp_path / name for name in ("one", "two")]
    for file, kept in zip(files, ([1, 1, 1, 0], [0, 1, 1, 1]), strict=True):
        write_mask(SparseMask(np.array(kept, bool), {"generator": "pixel:"}), file)
    assert "Jaccard 0.500" in typed("perturb", files[0], "--compare-sparse", files[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["perturb", "here", "--models", "x"], "--out RUN"),
        (["perturb", "no-such-run", "--publish", "x"], "does not exist; holdfast eval makes a run"),
        (
            ["perturb", "run", "--find-sparse", "x", "--generator", "y"],
            "--generator cannot be combined with --find-sparse",
        ),
        (["perturb", "run", "--strength", "2"], "--strength goes with --find-sparse"),
        (["perturb", "diorama:test?n=2", "--models", MODEL, "--oracle", "clip:embedded", "--out", "OUT"], "generators"),
        (["perturb", "diorama:test?n=2", "--models", MODEL, "--generator", "pixel:", "--out", "OUT"], "ls oracles"),
        (["perturb", "diorama:test?n=2", "--models", MODEL, *WALK, "--step-size", "-1", "--out", "OUT"], "step-size"),
    ],
)
def test_a_mistake_is_a_sentence(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        typed(*(str(tmp_path / "run") if word == "OUT" else word for word in words))


def test_ls_has_generators_and_oracles() -> None:
    assert "vqgan:" in typed("ls", "generators") and "pixel:" in typed("ls", "generators")
    assert "ensemble:" in typed("ls", "oracles") and "timm:" not in typed("ls", "oracles")


def test_the_commands_defaults_are_the_librarys() -> None:
    """Every option is part of a row's name: another default would walk everything again."""
    given = inspect.signature(perturb).parameters
    for option, value in asdict(WalkOptions()).items():
        default = given[option].default
        assert type(value)(default) == value, option
