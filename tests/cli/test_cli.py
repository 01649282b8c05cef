"""The commands as a new user types them, wrong ones included."""

from __future__ import annotations

import csv
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import alone, run
from holdfast.cli.listing import KINDS


def test_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = alone("ls")
    assert len(listed.stdout.splitlines()) == len(KINDS) and all(
        f"holdfast ls {kind} " in listed.stdout for kind in KINDS
    )
    assert listed.returncode == 0 and not listed.stderr
    for kind, word in (("scenarios", "silhouette"), ("models", "timm:"), ("data", "ximagenet12:"), ("masks", "u2netp")):
        assert word in run("ls", kind).stdout
    assert "refused" not in run("ls", "models").stdout, "what no command takes is not listed"
    assert "timm:" not in run("ls", "scenarios").stdout
    wrong = alone("eval", "no-such-folder", "--models", "timm:resnet18", "--out", "x")
    assert wrong.returncode == 2 and wrong.stderr.startswith("holdfast: ") and wrong.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["--help", "compare --help", "doctor"])
def test_a_reader_that_stops_early_is_no_error(words: str) -> None:
    command = f"{sys.executable} -m holdfast.cli.main {words} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "scenarois"], "did you mean scenarios"),
        (["eval", "no-such-folder", "--models", "timm:resnet18", "--out", "x"], "no-such-folder"),
        (["eval", "PHOTOS", "--models", "tim:resnet18", "--out", "x"], "did you mean timm"),
        (["eval", "PHOTOS", "--models", "resnet18", "--out", "x"], "scheme:name"),
        (["eval", "PHOTOS", "--models", "packaged:mobilenet_v2", "--out", "x"], "--labels"),
        (["eval", "PHOTOS", "--models", "MODEL", "--scenarios", "blur_backgruond", "--out", "x"], "blur_background"),
        (["eval", "PHOTOS", "--models", "MODEL", "--scenarios", "grey?sigma=3", "--out", "x"], "no parameter 'sigma'"),
        (["eval", "PHOTOS", "--models", "MODEL", "--matte", "pink", "--out", "x"], "matte"),
        (["eval", "PHOTOS", "--models", "MODEL", "--split", "test", "--out", "x"], "no splits"),
        (["eval", "PHOTOS", "--models", "MODEL", "--out", "/proc/nowhere"], "cannot write"),
        (["synth", "PHOTOS", "--format", "gif", "--out", "x"], "jpeg, parquet, png, webdataset"),
        (["synth", "PHOTOS", "--quality", "0", "--out", "x"], "between 1 and 100"),
        (["synth", "PHOTOS", "--scenarios", "generated_background", "--out", "x"], "--generator"),
        (["synth", "PHOTOS", "--scenarios", "grey", "--generator", "embedded:", "--out", "x"], "is for generated"),
        (["mask", "PHOTOS", "--with", "u2net", "--out", "x"], "did you mean u2netp"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    words: list[str], said: str, photos: Path, toy_models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [{"PHOTOS": str(photos), "MODEL": f"{toy_models}:colour"}.get(word, word) for word in words]
    result = run(*filled, code=2)
    assert said in result.stderr
    assert result.stderr.startswith("holdfast: ") and result.stderr.count("\n") == 1
    assert not result.stdout


@pytest.mark.parametrize(
    "words",
    [
        "check MODEL PHOTOS",
        "demo --quick",
        "eval PHOTOS --models MODEL --scenarios original",
        "generate --generator diorama: --limit 2",
        "mask PHOTOS",
        "mine PHOTOS --surrogates MODEL,SECOND --targets python:toy_models:broken --oracle clip:embedded",
        "report RUN",
        "segment diorama:test?n=12 --models embedded:unet",
        "synth PHOTOS --scenarios grey",
        "train diorama:test?n=48 --architectures embedded:resnet_rho95",
    ],
)
def test_a_folder_with_files_of_others_is_refused_as_out(
    words: str, photos: Path, toy_models: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    (kept / "cat").mkdir(parents=True)
    (kept / "cat" / "1.txt").write_text("mine")
    model, made = f"{toy_models}:colour", tmp_path / "run"
    if "RUN" in words:
        run("eval", str(photos), "--models", model, "--scenarios", "original", "--out", str(made))
    filled = (
        words.replace("PHOTOS", str(photos))
        .replace("MODEL", model)
        .replace("SECOND", f"{toy_models}:second")
        .replace("RUN", str(made))
        .split()
    )
    refused = run(*filled, "--out", str(kept), code=2)
    assert (
        refused.stderr == f"holdfast: {kept} is not empty and was not written by this command; choose another --out\n"
    )
    assert [path.name for path in kept.rglob("*")] == ["cat", "1.txt"]


@pytest.mark.parametrize("verb", ["check", "eval", "report", "explain", "compare"])
def test_commands_whose_arguments_differ_in_order_show_each_other(verb: str) -> None:
    printed = " ".join(run(verb, "--help").stdout.split())
    for usage in ("check MODEL PHOTOS", "eval DATA --models A,B --out RUN", "explain RUN", "compare RUN NEW_RUN"):
        assert usage in printed


def test_the_package_runs_as_a_module() -> None:
    answer = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("holdfast ")


def test_an_unknown_verb_and_a_missing_option() -> None:
    assert "No such command" in run("evla", code=2).stderr
    assert "--models" in run("eval", "here", "--out", "x", code=2).stderr


def test_debug_shows_where(photos: Path, tmp_path: Path) -> None:
    result = alone("synth", photos, "--format", "gif", "--out", tmp_path / "x", "--debug")
    assert "Traceback" in result.stderr and "UserError" in result.stderr


def test_eval_prints_accuracy_and_progress(photos: Path, toy_models: str, tmp_path: Path) -> None:
    result = run("eval", photos, "--models", f"{toy_models}:slow", "--scenarios", "static", "--out", tmp_path / "run")
    assert "random_background" in result.stdout and "100.0 % / 100.0 %" in result.stdout
    assert "156 made, 0 there already" in result.stdout and "12 images each" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("Next: holdfast report ")
    assert "eval: 156/156" in result.stderr


def test_eval_prints_the_pictures_of_each_cell_where_they_differ(photos: Path, toy_models: str, tmp_path: Path) -> None:
    sorted((photos / "masks").rglob("*.png"))[0].unlink()  # grey needs a mask
    words = (
        "eval",
        photos,
        "--models",
        f"{toy_models}:slow",
        "--scenarios",
        "original,grey",
        "--out",
        tmp_path / "run",
    )
    said = run(*words).stdout
    assert "(images)" in said and "100.0 % / 100.0 % (12)" in said and " % (11)" in said


def test_eval_prints_the_accuracy_of_the_report(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for image in sorted((photos / "images" / "disc").iterdir())[1:]:
        image.unlink()
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "one_answer.py").write_text("def disc(images):\n    return ['disc'] * len(images)\n")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    words = ("--models", "python:one_answer:disc", "--scenarios", "original", "--out", tmp_path / "run")
    assert "33.3 % / 33.3 %" in run("eval", photos, *words).stdout  # of nine images, one of them a disc
    with (Path(run("report", tmp_path / "run").stdout.strip()).parent / "tables" / "scores.csv").open() as file:
        assert next(csv.DictReader(file))["original"].startswith("0.333")


def test_data_duplicates_looks_as_far_as_the_library_advises() -> None:
    from inspect import signature

    from holdfast.cli.datasets import data_duplicates
    from holdfast.pipeline.leaks import DEFAULT_MAX_DISTANCE

    assert signature(data_duplicates).parameters["distance"].default == DEFAULT_MAX_DISTANCE


def test_mask_split_duplicates_and_doctor(photos: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks"
    first = run("mask", photos, "--with", "threshold", "--out", masks, "--doubtful", 1, "--workers", 1)
    assert "12 made, 0 there already" in first.stdout and "worst first" in first.stdout
    assert (masks / "disc" / "0.png").is_file()
    assert "0 made, 12 there already" in run("mask", photos, "--with", "threshold", "--out", masks).stdout
    listed = (masks / "masks.csv").read_text().splitlines()
    assert len(listed) == 13
    manifest = photos / "split.csv"
    assert "test: 3, train: 9" in run("data", "split", photos, "--test", 0.25, "--folds", 2, "--out", manifest).stdout
    assert "12 near-duplicate pairs" in run("data", "duplicates", photos, photos, "-q").stderr
    text = run("doctor").stdout
    assert "torch" in text and "cores" in text and "chromium" in text


def test_report_compare_and_audit(photos: Path, toy_models: str, tmp_path: Path) -> None:
    models = f"{toy_models}:colour?name=good,{toy_models}:broken?name=bad"
    run("eval", photos, "--models", models, "--scenarios", "all", "--out", tmp_path / "run", "-q")
    page = Path(run("report", tmp_path / "run", "--resamples", 200).stdout.strip())
    assert page == tmp_path / "run" / "report" / "index.html"
    text = page.read_text(encoding="utf8")
    assert "good" in text and "http://" not in text.replace("http://www.w3.org", "")
    same = ["compare", tmp_path / "run", tmp_path / "run", "--old-model", "good", "--new-model"]
    passed = run(*same, "good", "--margin", 0.3, "--conditions", "original,grey")
    assert "passed" in passed.stdout
    counted = "Images that got the same new background count together; the test errs in at most 5 %"
    assert counted in run(*same, "good", "--margin", 0.3).stdout
    assert "failed" in run(*same, "bad", "--conditions", "original", code=1).stdout
    assert "undecided" in run(*same, "good", "--margin", 0.001, code=3).stdout
    floor = run(*same, "good", "--margin", 0.3, "--conditions", "original", "--fail-under", "score=0.01").stdout
    assert "score" in floor and "n = 12" in floor
    assert "name=number" in run(*same, "good", "--fail-under", "score", code=2).stderr
    for wrong in ("score=nan", "score=80", "speed=0.5"):
        told = run(*same, "good", "--fail-under", wrong, code=2)
        assert "--fail-under" in told.stderr and not told.stdout  # before anything is computed
    table = tmp_path / "table.csv"
    table.write_text(
        "dataset,model,standard_accuracy,perturbed_accuracy,fmr\nA,m,90.00,45.00,50.00\nB,m,80.00,20.00,30.00\n"
    )
    found = run("audit", "table", table, code=1).stdout
    assert "B" in found and "1 findings" in found
    table.write_text("dataset,model,standard_accuracy,perturbed_accuracy,fmr\nA,m,90.00,45.00,50.00\n")
    assert "nothing found" in run("audit", "table", table).stdout


def test_sigterm_is_a_sentence(tmp_path: Path) -> None:
    words = ["synth", "diorama:test?n=4000", "--scenarios", "grey", "--workers", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "holdfast.cli.main", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and next((tmp_path / "out").rglob("*.png"), None) is None:
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert said.splitlines()[-1] == "holdfast: stopped; run the same command again to continue"
    assert "Traceback" not in said


def test_a_list_is_typed_with_commas_or_by_repeating_the_option(photos: Path, toy_models: str, tmp_path: Path) -> None:
    models = ["--models", f"{toy_models}:colour?name=first", "--models", f"{toy_models}:second?name=second"]
    scenarios = ["--scenarios", "original,grey", "--scenarios", "red"]
    said = run("eval", photos, *models, *scenarios, "--out", tmp_path / "run").stdout
    assert f"{12 * 2 * 3} made" in said and "first" in said and "second" in said


def test_quiet_is_of_one_command_only(tmp_path: Path) -> None:
    before = logging.getLogger("holdfast").level
    words = ("--models", "embedded:resnet_rho0", "--scenarios", "original", "--quiet", "--out", str(tmp_path / "run"))
    assert run("eval", "diorama:test?n=12", *words).returncode == 0
    assert logging.getLogger("holdfast").level == before
