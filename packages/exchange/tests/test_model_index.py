"""Results in the metadata of model cards."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results

from commands import run as command
from exported_run import HOSTILE, OWNER, make_run, rewritten
from holdfast import api
from holdfast.core.errors import UserError
from holdfast.store import Run
from holdfast_evidence.board.add import add
from holdfast_evidence.board.entry import Entry, read_entry
from holdfast_exchange.export import board_scores, export
from holdfast_exchange.model_index import ModelResults, ModelScore


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("exports"))


@pytest.fixture(scope="module")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cards") / "out"
    assert export(run.path, "model-index", out, scores=board_scores) == ["2 model cards"]
    return out


def _cards(folder: Path) -> dict[str, ModelCard]:
    cards = [ModelCard.load(path) for path in sorted(folder.rglob("README.md"))]
    return {card.data.model_name: card for card in cards}


def test_a_damaged_record_of_the_environment_is_named(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    (copy / "environment.json").write_text('{"packages": {"holdfast": "0.')
    with pytest.raises(UserError, match=r"environment\.json is damaged"):
        export(copy, "fiftyone", tmp_path / "out", scores=board_scores)


def test_every_number_and_interval_of_the_board_is_there(run: Run, folder: Path, tmp_path: Path) -> None:
    entries: dict[str, Entry] = {}
    for path in add(run.path, tmp_path / "board"):
        entry = read_entry(path)
        entries[entry.model.name] = entry
    cards = _cards(folder)
    assert set(cards) == set(entries) == {"python:export_models:good", "python:export_models:tilted"}
    for name, entry in entries.items():
        told = cards[name].data.eval_results
        assert [one.metric_value for one in told] == [score.estimate for score in entry.scores]
        assert [one.metric_args.get("low") for one in told] == [score.low for score in entry.scores]
        assert [one.metric_args.get("high") for one in told] == [score.high for score in entry.scores]
        assert [one.metric_args["n"] for one in told] == [score.n for score in entry.scores]
        assert {one.dataset_args["run"] for one in told} == {entry.run.fingerprint}
        assert told[0].metric_type == "robustness_score" and told[0].dataset_config == "static"
        assert {"accuracy under grey", "accuracy under random_background"} <= {one.metric_name for one in told}


def test_the_hub_makes_the_same_of_it_and_back(folder: Path) -> None:
    for card in _cards(folder).values():
        index = card.data.to_dict()["model-index"]
        name, results = model_index_to_eval_results(index)
        assert eval_results_to_model_index(name, results) == index
        (one,) = index[0]["results"]
        assert one["task"] == {"type": "image-classification", "name": "Image classification"}
        assert one["dataset"]["type"] == "my-images" and one["dataset"]["split"] == "test"


def test_people_read_the_numbers_too(folder: Path) -> None:
    card = _cards(folder)["python:export_models:good"]
    first = card.data.eval_results[0]
    line = next(line for line in card.text.splitlines() if line.startswith("| robustness score |"))
    assert f"{first.metric_value:.3f}" in line and f"{first.metric_args['low']:.3f} to" in line
    assert all(OWNER not in path.read_text() for path in folder.rglob("README.md"))


def test_hostile_names_stay_names(run: Run, tmp_path: Path) -> None:
    other = rewritten(
        run, tmp_path / "hostile",
        {"model": {"python:export_models:good": HOSTILE, "python:export_models:tilted": "../../x"},
         "dataset": {"my images": HOSTILE}},
    )  # fmt: skip
    command("share", "export", other.path, "--to", "model-index", "--out", tmp_path / "out")
    assert sorted(path.parent.parent for path in tmp_path.rglob("README.md")) == [tmp_path / "out"] * 2
    card = _cards(tmp_path / "out")[HOSTILE.replace("\n", " ")]
    assert "<script>" not in card.text and card.text.count("\n# ") == 1
    assert card.data.eval_results[0].dataset_name == HOSTILE.replace("\n", " ")
    assert set(card.data.eval_results[0].dataset_type) <= set("abcdefghijklmnopqrstuvwxyz-_.0123456789DT")


def test_models_whose_names_meet_get_cards_of_their_own(run: Run, tmp_path: Path) -> None:
    names = {"python:export_models:good": "a b", "python:export_models:tilted": "A/b"}
    other = rewritten(run, tmp_path / "other", {"model": names})
    export(other.path, "model-index", tmp_path / "out", scores=board_scores)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["A_b", "a_b_2"]
    assert set(_cards(tmp_path / "out")) == {"a b", "A/b"}


def test_bounds_that_are_nowhere_are_left_out(run: Run, tmp_path: Path) -> None:
    def scores(rows: object) -> list[ModelResults]:
        numbers = [
            ModelScore("a", 0.5, -math.inf, math.nan),
            ModelScore("b", math.nan, 0, 1),
            ModelScore("c:d", 1.0, 0.5, 1.0, 3),
        ]
        return [ModelResults("x", numbers), ModelResults("x", numbers[:1])]

    export(run.path, "model-index", tmp_path / "out", scores=scores)
    for card in _cards(tmp_path / "out").values():
        told = [
            (one.dataset_config, one.metric_type, one.metric_value, one.metric_args) for one in card.data.eval_results
        ]
        assert told == [
            ("x", "a", 0.5, {}),
            ("x", "c", 1.0, {"low": 0.5, "high": 1.0, "level": 0.95, "n": 3}),
            ("x-2", "a", 0.5, {}),
        ]
        assert "nan" not in card.content


def test_without_numbers_there_is_no_card(tmp_path: Path) -> None:
    run = make_run(tmp_path, "original")
    with pytest.raises(UserError, match="has no numbers for a model card"):
        export(run.path, "model-index", tmp_path / "out", scores=board_scores)
    assert not (tmp_path / "out").exists()


def test_answers_in_words_have_numbers(tmp_path: Path) -> None:
    asked = api.ask(
        "diorama:test?n=6&size=64", models="embedded:resnet_rho95", questions="full_list", out=tmp_path / "asked",
        device="cpu",
    )  # fmt: skip
    export(asked.path, "model-index", tmp_path / "out", scores=board_scores)
    (card,) = _cards(tmp_path / "out").values()
    row = asked.questions().iloc[0]
    told = {one.metric_name: one.metric_value for one in card.data.eval_results}
    assert told["accuracy under strict reading"] == row["strict"]
    assert card.data.eval_results[0].task_type == card.data.pipeline_tag == "visual-question-answering"
