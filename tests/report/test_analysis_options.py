"""Families of scenarios, groups of models, reference levels, Poisson and the earlier score, as options of a report."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_runs import make_run
from scipy import stats

import holdfast
from commands import run

CONDITIONS = ("original", "blur_object", "blur_background", "grey", "random_background")
MODELS = ("timm:resnet50", "timm:vgg16", "timm:vit_tiny", "timm:swin_tiny")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analysis") / "run"
    make_run(folder, models=MODELS, conditions=CONDITIONS, photos=6)
    return folder


@pytest.fixture(scope="module")
def plain(made: Path) -> Path:
    """The report that no one chose anything for."""
    return holdfast.report([made], made.parent / "plain", resamples=100).parent


def test_families_and_groups_stand_in_the_report(plain: Path) -> None:
    drops = pd.read_csv(plain / "tables" / "family_drops.csv")
    assert set(drops["family"]) == {"blur", "colour", "background", "all families"}
    assert set(drops["group"]) == {"CNN", "transformer"}
    groups = pd.read_csv(plain / "tables" / "family_groups.csv").set_index(["group", "family"])
    cnn = drops[(drops["group"] == "CNN") & (drops["family"] == "blur")]["drop"].mean()
    assert groups.loc[("CNN", "blur"), "drop"] == pytest.approx(cnn)
    assert "CNN models lose" in (plain / "index.html").read_text() and (plain / "figures/family_drops.svg").is_file()


def test_options_of_the_command_change_the_fit_and_the_score(made: Path, plain: Path, tmp_path: Path) -> None:
    out = {"plain": plain, "chosen": tmp_path / "chosen"}
    run(
        "report", made, "--out", out["chosen"], "--resamples", "100", "--reference", "condition=grey", "--reference",
        "label=fox", "--regression", "poisson", "--score", "scenario,class", "--model-groups", "big=timm:*50,big=*vgg*",
        "--model-groups", "small=*tiny",
    )  # fmt: skip
    tables = {name: pd.read_csv(folder / "tables" / "coefficients.csv") for name, folder in out.items()}
    assert "scenario[original]" in set(tables["chosen"]["term"]) and "class[fox]" not in set(tables["chosen"]["term"])
    fitted = holdfast.open_run(made).regression(references={"condition": "grey", "label": "fox"}, family="poisson")
    shown = tables["chosen"].set_index("term")["estimate"]
    expected = np.expm1(fitted.coefficients.set_index("term")["estimate"])
    assert shown["scenario[blur_object]"] == pytest.approx(expected["scenario[blur_object]"])
    scores = {name: pd.read_csv(folder / "tables" / "robustness_score.csv") for name, folder in out.items()}
    assert (scores["chosen"]["score"] < scores["plain"]["score"]).all()
    assert set(scores["chosen"]["parts"]) == {"scenario+class"}
    assert set(pd.read_csv(out["chosen"] / "tables" / "family_groups.csv")["group"]) == {"big", "small"}
    text = (out["chosen"] / "index.html").read_text()
    assert "S = 1 − (σi + σe)" in text and "per cent against the reference" in text


def by_hand(made: Path, conditions: tuple[str, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Macro accuracies from the rows: those of the conditions less the originals' (a column each), and per class."""
    rows = holdfast.open_run(made).run.rows().to_pandas().astype({"model": str, "condition": str, "label": str})
    rows["correct"] = rows["correct"].astype(float)
    means = rows.groupby(["model", "condition", "label"])["correct"].mean()
    macro = means.groupby(["model", "condition"]).mean().unstack()
    kept = means[means.index.get_level_values("condition").isin(conditions)].groupby(["model", "label"]).mean()
    return macro[list(conditions)].sub(macro["original"], axis=0), kept.unstack()


ALL = CONDITIONS[1:]


@pytest.mark.parametrize(
    ("words", "conditions", "sentence"),
    [
        ((), ALL, "Over 4 conditions: .* divided by their number n \\(ddof 0\\).*a gain over μ lowers the score"),
        (("--ddof", "1"), ALL, "divided by n − 1 \\(ddof 1\\), as in the paper's printed tables"),
        (("--losses-only",), ALL, "only losses count"),
        (("--score-over", "grey,blur_object"), ("grey", "blur_object"), "Over 2 conditions"),
        (("--score-over", "blur"), ("blur_background", "blur_object"), "Over 2 conditions"),
        (("--score-over", "background"), ("blur_background", "grey", "random_background"), "Over 3 conditions"),
        (("--score", "scenario,class"), ALL, "with standard deviations"),
        (("--score", "scenario,class,variance"), ALL, "with variances in place of standard deviations"),
    ],
)
def test_the_score_follows_its_options_and_the_page_says_so(
    made: Path, tmp_path: Path, words: tuple[str, ...], conditions: tuple[str, ...], sentence: str
) -> None:
    out = run("report", made, "--out", tmp_path / "page", "--resamples", "100", *words).stdout
    gaps, classes = by_hand(made, conditions)
    if "--losses-only" in words:
        gaps = gaps.clip(upper=0)
    cross = (gaps**2).sum(axis=1) / (len(conditions) - ("--ddof" in words))
    inner = classes.var(axis=1, ddof=0) if "--score" in words else 0 * cross
    if "scenario,class" in words:
        cross, inner = np.sqrt(cross), np.sqrt(inner)
    shown = pd.read_csv(tmp_path / "page" / "tables" / "score_parts.csv").set_index("model")
    assert shown["score"].to_dict() == pytest.approx((1 - cross - inner).to_dict())
    assert shown["cross"].to_dict() == pytest.approx(cross.to_dict())
    assert set(shown["n_conditions"]) == {len(conditions)}
    each = pd.read_csv(tmp_path / "page" / "tables" / "score_scenarios.csv").set_index(["model", "condition"])
    assert each["cross"].to_dict() == pytest.approx((gaps**2).stack().to_dict())
    text = " ".join(html.unescape((tmp_path / "page" / "index.html").read_text()).split())
    assert re.search(sentence, text)
    assert ("σ over scenarios" in text, "Variance over classes" in text) == (
        "scenario,class" in words, "scenario,class,variance" in words,
    )  # fmt: skip
    assert ("robustness score over" in out) == ("--score-over" in words)


def test_the_six_families_of_the_paper_can_be_chosen(tmp_path: Path) -> None:
    names = [
        "blur_object",
        "grey",
        "bright_object",
        "segmented",
        "transparent",
        "random_background",
        "generated_background",
    ]
    path = make_run(tmp_path / "run", models=MODELS[:1], conditions=("original", *names), photos=4).path
    families = {}
    for whose in ("holdfast", "ximagenet12"):
        run("report", path, "--out", tmp_path / whose, "--families", whose, "--resamples", "100")
        families[whose] = pd.read_csv(tmp_path / whose / "tables" / "family_drops.csv").set_index("family")
    ours = {"blur", "colour", "light", "cutout", "background", "generated", "all families"}
    theirs = {"blur", "colour and brightness", "segmented", "transparent", "random background", "generated background"}
    assert set(families["holdfast"].index) == ours and set(families["ximagenet12"].index) == theirs | {"all families"}
    gaps, _ = by_hand(path, ("grey", "bright_object"))
    drop = families["ximagenet12"].loc["colour and brightness", "drop"]
    assert drop == pytest.approx(-gaps.to_numpy().mean())
    assert "Families of scenarios of XIMAGENET-12" in (tmp_path / "ximagenet12" / "index.html").read_text()
    assert "of XIMAGENET-12" not in (tmp_path / "holdfast" / "index.html").read_text()


def test_confidence_and_digits_of_the_regression(made: Path, plain: Path, tmp_path: Path) -> None:
    words = ("--confidence", "0.9", "--digits", "3")
    run("report", made, "--out", tmp_path / "page", "--resamples", "100", *words)
    usual, chosen = (pd.read_csv(folder / "tables" / "coefficients.csv") for folder in (plain, tmp_path / "page"))
    assert chosen["p"].to_numpy() == pytest.approx(usual["p"].to_numpy(), nan_ok=True)
    freedom = len(MODELS) * len(CONDITIONS) * 4 - (1 + 3 + 4 + 3)
    half = stats.t(freedom).ppf(0.95) * chosen["published_standard_error"]
    assert (chosen["published_high"] - chosen["estimate"]).to_numpy() == pytest.approx(half.to_numpy())
    assert ((chosen["high"] - chosen["low"]) < (usual["high"] - usual["low"])).all()
    quality = pd.read_csv(tmp_path / "page" / "tables" / "regression_quality.csv").set_index("measure")["value"]
    fitted = holdfast.open_run(made).regression()
    observed = fitted.residuals["fitted"] + fitted.residuals["residual"]
    multiple = np.corrcoef(fitted.residuals["fitted"], observed)[0, 1]
    assert all("p = 0" not in value for name, value in quality.items() if name.startswith("Normality"))
    assert quality["Multiple R"] == f"{multiple:.3f}" and quality["R²"] == f"{fitted.r_squared:.3f}"
    text = (tmp_path / "page" / "index.html").read_text()
    section = text[text.index('id="regression"') : text.index('id="confidence"')]
    assert "Intervals are at the 90 % level" in section and "90 % interval" in section
    assert "95 % interval" not in section.split("Do models differ")[0]
    row = chosen.set_index("term").loc["scenario[grey]"]
    assert f"{100 * row['estimate']:.3f}".replace("-", "−") in section


def test_generated_backgrounds_enter_the_score_by_default(tmp_path: Path) -> None:
    kept = ("original", "generated_background")
    path = make_run(tmp_path / "run", models=MODELS[:1], conditions=kept, photos=6).path
    found = holdfast.open_run(path).scores(resamples=100).iloc[0]
    gaps, _ = by_hand(path, kept[1:])
    assert found["n_conditions"] == 1
    assert found["score"] == pytest.approx(1 - float(gaps.to_numpy()[0, 0]) ** 2)
    whole = make_run(tmp_path / "both", models=MODELS[:1], conditions=(*CONDITIONS, kept[1]), photos=6)
    scores = {
        over: holdfast.Results(whole).scores(over=over, resamples=100).iloc[0] for over in ("static", "background")
    }
    assert (scores["static"]["n_conditions"], scores["background"]["n_conditions"]) == (5, 4)


def test_a_score_over_unknown_conditions_is_an_error(made: Path) -> None:
    results = holdfast.open_run(made)
    for over in ("foreground", "static,gray_background", "industrial", ""):
        with pytest.raises(holdfast.UserError, match=r"condition"):
            results.scores(over=over, resamples=100)
    with pytest.raises(holdfast.UserError, match="components must be cross_inner"):
        results.scores(components="scenario", resamples=100)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--score-over", "blur_objects", "did you mean blur_object"),
        ("--score-over", "nothing", "'nothing'; known: background, blur_background, "),
        ("--confidence", "1.5", "--confidence 1.5: expected a number between 0 and 1"),
        ("--families", "theirs", "ximagenet12"),
        ("--ddof", "2", "less than or equal to 1"),
        ("--regression", "linear", "ols or poisson"),
        ("--score", "class", "scenario,class"),
        ("--reference", "grey", "FACTOR=LEVEL"),
        ("--reference", "condition=nothing", "is called 'nothing'; known: blur_background, "),
        ("--reference", "colour=grey", "No factor"),
        ("--model-groups", "CNN", "GROUP=PATTERN"),
        ("--model-groups", "CNN=nobody", "No model is called"),
    ],
)
def test_bad_options_are_refused(made: Path, tmp_path: Path, option: str, value: str, sentence: str) -> None:
    refused = run("report", made, "--out", tmp_path, option, value, "--resamples", "100", code=2)
    assert sentence in " ".join(refused.stderr.split())


def test_family_names_are_groups_of_scenarios() -> None:
    names = [condition.name for condition in holdfast.parse_conditions("original,blur,color")]
    assert names == ["original", "blur_background", "blur_object", "grey", "red", "green", "blue", "rainbow"]
    assert [condition.name for condition in holdfast.parse_conditions("background@moved")] == [
        "random_background@moved"
    ]
    assert [condition.name for condition in holdfast.parse_conditions("generated")] == ["generated_background"]
    every = {condition.name for condition in holdfast.parse_conditions("blur,colour,light,cutout,background")}
    assert every == {condition.name for condition in holdfast.parse_conditions("static")} - {"original"}


def test_parameters_and_speed_stand_in_the_table_of_scores(plain: Path, tmp_path: Path) -> None:
    assert "milliseconds" not in pd.read_csv(plain / "tables" / "scores.csv")
    measured = holdfast.evaluate(
        "diorama:test?n=24", models=["embedded:resnet_rho0", "embedded:vit_rho95"], scenarios="original,grey",
        out=tmp_path / "run", device="cpu",
    )  # fmt: skip
    (tmp_path / "times.csv").write_text("model,milliseconds\nembedded:vit_rho95,7.5\n")
    run("report", measured.path, "--out", tmp_path / "timed", "--resamples", "100", "--speed", tmp_path / "times.csv")
    timed = pd.read_csv(tmp_path / "timed" / "tables" / "scores.csv").set_index("model")
    network = holdfast.load_classifier("embedded:vit_rho95", device="cpu")
    count = sum(tensor.numel() for tensor in network.module.parameters())
    assert timed.loc["embedded:vit_rho95", "parameters"] == pytest.approx(count / 1e6)
    assert timed.loc["embedded:vit_rho95", "milliseconds"] == 7.5
    assert "times.csv" in (tmp_path / "timed" / "index.html").read_text()
    refused = run("report", measured.path, "--out", tmp_path / "no", "--speed", "nothing.csv", code=2)
    assert "there is no file nothing.csv" in " ".join(refused.stderr.split())
