"""Printed tables as entries, and which entries may be side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from made_board import make_board, make_run, static_rows, walk_rows
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.errors import UserError
from holdfast_evidence.board.add import add
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import Entry, entry_json, parse_entry, read_entry
from holdfast_evidence.board.printed import comparable, import_model_info, model_info, printed_entries

FACTS = Path(__file__).parents[4].parent / "shared" / "facts"
CONDITIONS = {
    "image_g": "green", "image_b": "blue", "image_r": "red", "image_grey": "grey", "segmented_image": "segmented",
}  # fmt: skip


def _facts(name: str) -> list[dict[str, str]]:
    if not (FACTS / name).is_file():
        pytest.skip("the papers' tables are not next to this checkout")
    with (FACTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _find(model: str, dataset: str, where: str, **settings: Any) -> dict[str, float]:
    (found,) = [
        entry for entry in printed_entries()
        if entry.model.name == model and entry.source is not None and where in entry.source.where
        and entry.dataset.name == dataset
        and all(entry.protocol.settings.get(name) == value for name, value in settings.items())
    ]  # fmt: skip
    return {score.name: score.estimate for score in found.scores}


def test_every_printed_entry_is_an_entry_with_its_source() -> None:
    entries = printed_entries()
    assert len({entry.id for entry in entries}) == len(entries) == 62
    for entry in entries:
        assert entry.kind == "printed"
        assert entry.source is not None
        assert entry.source.link.startswith("https://arxiv.org/abs/")
        assert parse_entry(entry_json(entry), entry.id) == entry
        assert all(score.low is None and score.high is None for score in entry.scores)
        assert all(slip.endswith(".") for slip in entry.slips)


def test_ximagenet12_is_as_printed() -> None:
    for row in _facts("ximagenet12_table1.csv"):
        found = _find(row["model"], "XIMAGENET-12", "Table")
        title = "accuracy" if row["experiment"] == "EX1" else "accuracy_within"
        for column, text in row.items():
            if column not in ("experiment", "model", "params_m"):
                assert found[f"{title}:{CONDITIONS.get(column, column)}"] == pytest.approx(float(text) / 100)
    for row in _facts("ximagenet12_table2.csv"):
        found = _find(row["model"], "XIMAGENET-12", "2")
        assert found["robustness_score"] == float(row["score_printed"])
        part = "variance_cross" if row["kind"] == "external" else "variance_inner"
        assert found[part] == float(row["variance_printed"])


def test_fmr_is_as_printed() -> None:
    for row in _facts("fmr_table1.csv"):
        (found,) = [
            {score.name: score.estimate for score in entry.scores} for entry in printed_entries()
            if entry.source is not None and entry.source.where == "Table 1" and "2308.10632" in entry.source.link
            and (entry.model.name, entry.dataset.name.replace("Restricted ImageNet", "9-class IN"))
            == (row["model"], row["dataset"])
        ]  # fmt: skip
        for name in ("standard_accuracy", "perturbed_accuracy", "fmr"):
            assert found[name] == pytest.approx(float(row[name]) / 100)
    makers = {"adm": "ADM", "iddpm": "Improved DDPM", "vdvae": "Efficient-VDVAE", "styleganxl": "StyleGAN-XL",
              "vqgan": "vqgan_imagenet_f16_16384"}  # fmt: skip
    for row in _facts("fmr_table3.csv"):
        model = row["model"] if row["model"] == "ResNet50" else f"ResNet50 {row['model']}"
        for short, generator in makers.items():
            found = _find(model, "ImageNet", "Table 3", generator=generator)
            assert found["fmr"] == pytest.approx(float(row[f"{short}_fmr"]) / 100)
            assert found["perturbed_accuracy"] == pytest.approx(float(row[f"{short}_pa"]) / 100)
    assert _find("DAT", "ImageNet", "Table 2") == {"fmr": 0.7135}
    found = _find("ResNet18", "Restricted ImageNet", "Table 13")
    for row in _facts("fmr_table13.csv"):
        behind = "" if row["class"] == "Total" else f":{row['class'].lower()}"
        for name in ("standard_accuracy", "validation_rate", "fmr"):
            assert found[name + behind] == pytest.approx(float(row[name]) / 100)


def test_slips_are_marked() -> None:
    told = {entry.model.name: " ".join(entry.slips) for entry in printed_entries() if "2310" in entry.model.paper}
    assert ".803, not .6305" in told["Swin"]
    assert "by the equation they are 0.0790 and 0.0098, and the score 0.9112" in told["ResNet50"]
    assert "11.28 of the text" in told["VGG-16"] and "27.95 of the text" in told["ViT"]
    cells = {entry.model.name: {score.name: score.estimate for score in entry.scores} for entry in printed_entries()
             if "2310" in entry.model.paper}  # fmt: skip
    for model, high, low, text in (
        ("VGG-16", "blur_background", "green", 0.1128),
        ("ViT", "blur_object", "blue", 0.2795),
    ):
        assert cells[model][f"accuracy:{high}"] - cells[model][f"accuracy:{low}"] == pytest.approx(text)
    walks = [entry for entry in printed_entries() if entry.protocol.name == "dynamic"]
    nine = next(one for one in walks if one.dataset.images == 1350 and one.source and one.source.where == "Table 1")
    assert "step of 0.1" in nine.slips[0]
    visformer = next(one for one in walks if one.model.name == "Visformer")
    assert "59.86 %, not 59.87 %" in visformer.slips[0]


def _changed(entry: Entry, **parts: Any) -> Entry:
    told = json.loads(entry_json(entry))
    for name, value in parts.items():
        told[name] = told[name] | value if isinstance(value, dict) else value
    return parse_entry(json.dumps(told), "changed")


def test_measured_entries_stand_together_where_everything_is_equal(tmp_path: Path) -> None:
    entries = [read_entry(path) for path in make_board(tmp_path / "board", tmp_path)]
    static = [one for one in entries if one.protocol.name == "static"]
    assert comparable(*static) == (True, "")
    hard = next(one for one in entries if one.protocol.name == "hard")
    for other, words in (
        (hard, "different questions"),
        (_changed(static[1], dataset={"sha256": "0" * 64}), "their images, masks or labels differ"),
        (_changed(static[1], dataset={"name": "other"}), "different images: made and other"),
        (_changed(static[1], protocol={"version": 2}), "versions 1 and 2"),
        (_changed(static[1], protocol={"settings": static[1].protocol.settings | {"seed": 4}}), "differ in seed: 0"),
        (_changed(static[1], protocol={"settings": static[1].protocol.settings | {"conditions": ["original", "fog"]}}),
         "only python:first has blur_background, blur_object, grey, random_background and 1 more and only "
         "python:second has fog"),
    ):  # fmt: skip
        fine, reason = comparable(static[0], other)
        assert not fine
        assert words in reason
        assert reason.endswith(".")
        assert "\n" not in reason


def test_printed_numbers_stand_beside_measured_ones_only_under_their_protocol(tmp_path: Path) -> None:
    told = {"generator": "vqgan:/models/vqgan_imagenet_f16_16384.ckpt", "oracle": "clip:ViT-B-32@openai?template=x",
            "size": 224, "space": "all", "steps": 50, "step_size": 0.001, "gradient": "sign"}  # fmt: skip
    rows = [
        row | {"parameters": json.dumps({"size": 224} if row["condition"] == "original" else told),
               "dataset": "imagenet"}
        for row in walk_rows("python:resnet50")
    ]  # fmt: skip
    mine = read_entry(add(make_run(tmp_path / "run", rows), tmp_path / "board")[0])
    walks = {entry.protocol.settings["generator"]: entry for entry in printed_entries()
             if entry.model.name == "ResNet50" and entry.protocol.name == "dynamic"}  # fmt: skip
    assert comparable(walks["vqgan_imagenet_f16_16384"], mine) == (True, "")
    assert comparable(mine, walks["vqgan_imagenet_f16_16384"]) == (True, "")
    fine, reason = comparable(mine, walks["ADM"])
    assert not fine
    assert "generator" in reason
    static = read_entry(add(make_run(tmp_path / "other", [
        row | {"dataset": "XIMAGENET-12"} for row in static_rows("python:resnet50")
    ]), tmp_path / "two")[0])  # fmt: skip
    printed = next(
        entry for entry in printed_entries() if entry.model.name == "ResNet50" and "2310" in entry.model.paper
    )
    fine, reason = comparable(printed, static)
    assert not fine
    assert "different conditions" in reason
    hard = next(entry for entry in printed_entries() if entry.protocol.name == "hard")
    assert not comparable(hard, printed)[0]


INFO = {
    "link": "https://arxiv.org/abs/0000.00000", "name": "A paper", "authors": "Someone", "additional_data": True,
    "number_forward_passes": 1, "dataset": "cifar10", "venue": "Nowhere 2024", "architecture": "WideResNet-28-10",
    "eps": "8/255", "clean_acc": "93.68", "reported": "75.71", "autoattack_acc": "73.71",
    "footnote": "With <b>more</b> data.", "unreliable": False,
}  # fmt: skip


def _info(folder: Path, **changes: Any) -> Path:
    path = folder / "Some2024Paper.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(INFO | changes))
    return path


def test_robustbench_becomes_printed_entries(tmp_path: Path) -> None:
    path = _info(tmp_path / "model_info" / "cifar10" / "Linf")
    (made,) = import_model_info([path], tmp_path / "board")
    entry = read_entry(made)
    assert {score.name: score.estimate for score in entry.scores} == {
        "robust_accuracy": 0.7371, "standard_accuracy": 0.9368, "reported_accuracy": 0.7571,
    }  # fmt: skip
    assert entry.dataset.name == "CIFAR10"
    assert entry.protocol.settings == {"attack": "AutoAttack", "norm": "Linf", "epsilon": "8/255"}
    assert entry.model.note == "A paper; Someone; Nowhere 2024; trained with additional data"
    other = model_info(_info(tmp_path / "another" / "cifar10" / "Linf", clean_acc="90", additional_data=False))
    assert comparable(entry, other) == (True, "")
    smaller = model_info(_info(tmp_path / "smaller" / "cifar10" / "Linf", eps="18/255"))
    assert comparable(entry, smaller) == (
        False, "They differ in epsilon: 8/255 for WideResNet-28-10 (Some2024Paper), 18/255 for WideResNet-28-10 "
        "(Some2024Paper)."
    )  # fmt: skip
    assert entry.slips == [
        "The paper reports 75.71 %; RobustBench found 73.71 %.", "Footnote: With <b>more</b> data.",
    ]  # fmt: skip
    assert check(tmp_path / "board") == []
    assert import_model_info([path], tmp_path / "board") == [made]  # as after a kill
    with pytest.raises(UserError, match="there already"):
        import_model_info([_info(path.parent, name="Another paper")], tmp_path / "board")
    with pytest.raises(UserError, match="there already"):
        import_model_info([path, path], tmp_path / "another board")
    printed = next(one for one in printed_entries() if one.dataset.name == "CIFAR10")
    fine, reason = comparable(entry, printed)
    assert not fine
    assert "differ in" in reason


def test_robustbench_corruptions_and_stronger_attacks(tmp_path: Path) -> None:
    changes = {"corruptions_acc_2d": "62.88", "corruptions_mce_2d": "147.06", "dataset": "imagenet", "reported": "",
               "autoattack_acc": None, "eps": None}  # fmt: skip
    entry = model_info(_info(tmp_path, **changes))
    assert entry.protocol.name == "static"
    assert {score.name: score.estimate for score in entry.scores} == {
        "standard_accuracy": 0.9368, "corrupted_accuracy": 0.6288, "mean_corruption_error": 1.4706,
    }  # fmt: skip
    stronger = model_info(_info(tmp_path, external="70.00", unreliable=True), threat="L2")
    assert stronger.scores[0].estimate == 0.7
    assert any("AutoAttack alone gives 73.71 %" in slip for slip in stronger.slips)
    assert any("unreliable" in slip for slip in stronger.slips)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clean_acc": "nan"}, "clean_acc is not a percentage"),
        ({"clean_acc": "inf"}, "clean_acc is not a percentage"),
        ({"clean_acc": "101"}, "clean_acc is not a percentage"),
        ({"autoattack_acc": ["x"]}, "autoattack_acc is not a percentage"),
        ({"dataset": "../../etc"}, "RobustBench has"),
        ({"eps": "1/0"}, "eps is not a number"),
        ({"eps": "9" * 4000}, "eps is not a number"),
        ({"architecture": "two\nlines"}, "characters or a form"),
    ],
)
def test_a_bad_model_info_is_a_sentence_and_nothing_is_written(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    good = _info(tmp_path / "Linf")
    bad = _info(tmp_path / "L2", **changes)
    with pytest.raises(UserError, match=words):
        import_model_info([good, bad], tmp_path / "board")
    with pytest.raises(UserError, match="no threat model is called 'L7'"):
        import_model_info([good], tmp_path / "board", threat="L7")
    assert not (tmp_path / "board").exists()
    for text, said in (
        ("[]", "not a model_info"),
        ("{", "not JSON"),
        ('{"clean_acc": "1", "dataset": "cifar10"}', "threat"),
    ):
        bad.write_text(text)
        with pytest.raises(UserError, match=said):
            model_info(bad.rename(tmp_path / "loose.json"))
        bad.write_text(text)
    link = _info(tmp_path / "Linf", link="javascript:alert(1)")
    assert model_info(link).model.paper == ""


def test_the_command_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", static_rows("python:a"))
    runner = CliRunner()
    added = runner.invoke(app, ["board", "add", str(run), "--out", str(tmp_path / "board")], catch_exceptions=False)
    assert added.exit_code == 0
    path = Path(added.output.strip())
    assert path.is_file()
    assert runner.invoke(app, ["board", "check", str(tmp_path / "board")]).exit_code == 0
    info = _info(tmp_path / "model_info" / "cifar10" / "L2")
    assert runner.invoke(app, ["board", "import", str(info), "--out", str(tmp_path / "board")]).exit_code == 0
    both = runner.invoke(app, ["board", "check", str(tmp_path / "board")])
    assert both.exit_code == 0
    assert "measured entries recomputed: 1\n" in both.output  # the printed one was not
    path.write_text("{}")
    failed = runner.invoke(app, ["board", "check", str(path)])
    assert failed.exit_code == 1
    assert "is not an entry" in failed.output
    wrong = runner.invoke(app, ["board", "check", str(tmp_path / "nothing")])
    assert isinstance(wrong.exception, UserError)
