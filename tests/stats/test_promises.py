"""The register of promises: nothing promised that is not measured, and a seeded part of the measurement."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from promises import fingerprint as code
from promises.page import outside, page, read, rows
from promises.promise import Measured, Simulation
from promises.register import PROMISES
from promises.runner import measured, run, simulations

DOCS = Path(__file__).parents[2] / "docs" / "statistics"
RATE = re.compile(r"\d ?%(?! (?:interval|level|quantile|lower bound)\b)|\b\d+ (?:of|in) [\d,]+\b|\bin \d+ of \d+")

NO_PROMISES = [
    # levels and definitions
    "(one-sided 5 %, Holm over conditions)",
    "| interval, p | t; 95 %, or `--confidence 0.9` |",
    "the outer 2.5 %",
    "0.75 % of the image's diagonal",
    "keep a width at 0 % and 100 %",
    "If a cell is at 0 or 100 %",
    "they may disagree near 100 % accuracy",
    "a square of 50 % or more",
]
"""What has a percent sign and is not a statement about how often something happens."""


RESULTS = {
    "sample-size": [("### What it saves", "### The release gate")],
    "fmr": [("**How many images.**", "**Oracles.**")],
}
"""Parts of pages that print what a named command or function gives, from a heading to another."""


def words(text: str) -> str:
    return " ".join(text.split())


def pages() -> dict[str, str]:
    """The pages without code, links' targets and line breaks."""
    found = {}
    for path in sorted(DOCS.glob("*.md")):
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
        for start, end in RESULTS.get(path.stem, ()):
            assert start in text and end in text, (path.stem, start, end)
            text = text[: text.index(start)] + text[text.index(end) :]
        found[path.stem] = words(re.sub(r" ?\(\[measured\]\([^)]*\)\)|\]\([^)]*\)", "", text))
    return found


def test_every_page_with_promises_links_to_them() -> None:
    assert len({promise.name for promise in PROMISES}) == len(PROMISES)
    for name in {promise.page for promise in PROMISES}:
        text = (DOCS / f"{name}.md").read_text(encoding="utf8")
        assert f"](promises.csv#{name})" in text, f"{name}.md does not link to its promises"


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_no_rate_stands_on_a_page_that_is_not_in_the_register(name: str) -> None:
    text = pages()[name]
    for phrase in [*{promise.statement for promise in PROMISES if promise.page == name}, *NO_PROMISES]:
        text = text.replace(words(phrase), "")
    assert not [text[max(0, hit.start() - 60) : hit.end() + 20] for hit in RATE.finditer(text)]


def test_the_table_has_a_measured_rate_for_every_promise_and_the_page_is_made_from_it() -> None:
    table = read(DOCS / "promises.csv")
    assert table == rows(PROMISES, {}, table)
    assert not [row for row in table if not row["measured"] or outside(row)]
    assert page(table).count("\n| ") > 100


def test_rates_that_were_drawn_replace_their_rows_and_no_others() -> None:
    table = read(DOCS / "promises.csv")
    names = {promise.name: number for number, promise in enumerate(sorted(PROMISES, key=lambda promise: promise.page))}
    name, number = next(iter(names.items()))
    made = rows(PROMISES, {name: Measured(1, 1000)}, table)
    assert made[number]["measured"] == "0.0010" and outside(made[number])
    assert "**outside**" in page(made) and "1 of" in page(made)
    assert [row for row in made if row not in table] == [made[number]]
    assert "not drawn yet" in page(rows(PROMISES, {}, []))


def test_phrases_that_are_no_promises_are_in_use() -> None:
    text = " ".join(pages().values())
    assert not [phrase for phrase in NO_PROMISES if words(phrase) not in text]


QUICK = {
    "accuracy.renderings": 300, "accuracy.donors-12x3": 300,
    "drops.uneven-macro": 250, "drops.donors-12": 300, "drops.one-of-three": 250, "drops.everything": 250,
    "holds.margin": 300,
    "robustness-score.120": 200, "robustness-score.renderings-24": 200, "robustness-score.donors-12x3": 200,
    "robustness-score.tiny-40-high": 150, "robustness-score.three-photos": 200, "robustness-score.missing": 200,
    "release-gate.donors-0": 50, "release-gate.donors-12x3": 120, "release-gate.alike": 40,
    "release-gate.six-conditions": 10, "release-gate.margins-36": 20, "release-gate.objects-20": 80,
    "comparing-models.eight": 60, "interaction.additive-60": 250, "interaction.few": 60, "choice.three": 30,
    "comparing-models.pairs-donors-12-uneven": 40, "comparing-models.donors-12": 40,
    "interaction.donors-12": 60, "votes.5": 40, "questions.60": 60, "segmentation.5": 30,
    "fmr.150": 200, "fmr-people.140-of-300": 30, "agreement.alpha": 60,
    "agreement.alpha-30-3-0.4-0.9": 60, "mining.change": 300,
    "sample-size.donors-120": 200, "objects.60": 60, "objects.donors-12": 60, "objects.ap-30": 25,
    "objects.ap-6": 25, "objects.ap-12": 25, "objects.images-20": 150, "objects.images-6": 150, "segmentation.12": 30,
    "between-datasets.drop": 40, "sequential.ring-3": 40,
    "regression.coefficient": 25,
    "watching.checkpoints": 20, "watching.checkpoints-donors": 20, "watching.months": 2, "watching.moved-120": 100,
    "watching.turned": 100, "watching.checks-turned": 15,
    "embedding.even-3": 150, "embedding.few-64": 150, "embedding.none-3": 200,
    "audit.clean": 60, "audit.slip-t-5": 20, "audit.slip-vr-1": 30,
    "audit.stars": 40, "audit.sign-t": 20, "audit.slip-claim-2": 60, "audit.slip-twice-2": 30,
}  # fmt: skip
"""Draws of those that take time; the others, a thousandth of a second a draw, get ``CHEAP``."""
CHEAP = 2_000
CHEAP_TRIALS = {
    "class_counts", "share", "sign_test", "trainings", "permuted", "gate_single_answers", "gate_more_photos", "auroc",
    "power", "settled", "prompts", "paired_models", "early",
}  # fmt: skip


def quick(simulation: Simulation) -> int:
    return CHEAP if simulation.trial.__name__ in CHEAP_TRIALS else QUICK.get(simulation.name, 0)


@pytest.mark.parametrize(
    "simulation", [pytest.param(s, id=s.name) for s in simulations(PROMISES) if quick(s)], scope="module"
)
def test_promises_hold_in_a_seeded_part(simulation: Simulation) -> None:
    """Within 1.6 times the binomial error at 95 %, three standard errors."""
    counts = simulation.block(0, quick(simulation))
    for promise in PROMISES:
        if promise.simulation.name == simulation.name:
            rate = Measured(*counts[promise.outcome])
            assert rate.keeps(promise, 1.6), (promise.statement, promise.setting, rate.rate)


def test_the_subset_names_simulations_that_there_are() -> None:
    assert set(QUICK) <= {simulation.name for simulation in simulations(PROMISES)}


def test_a_broken_promise_is_outside() -> None:
    promise = next(promise for promise in PROMISES if promise.statement.startswith("Intervals of drops cover in"))
    assert Measured(9_400, 10_000).keeps(promise) and Measured(46, 50).keeps(promise)
    assert not Measured(9_200, 10_000).keeps(promise) and not Measured(9_800, 10_000).keeps(promise)
    assert Measured(0, 4_000).error > 0


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    quick = ("settled", "power")  # trials that draw all of a block at once
    promises = [
        promise for promise in PROMISES if promise.page == "sample-size" and promise.simulation.trial.__name__ in quick
    ]
    assert run(tmp_path, promises, jobs=1)
    rates = measured(tmp_path, promises)
    assert set(rates) == {promise.name for promise in promises}
    path = tmp_path / f"{promises[0].simulation.name}.json"
    whole = path.read_text()
    stored = json.loads(whole)
    last = max(stored["blocks"], key=int)
    path.write_text(json.dumps(stored | {"blocks": {k: v for k, v in stored["blocks"].items() if k != last}}))
    assert promises[0].name not in measured(tmp_path, promises)
    assert run(tmp_path, promises, jobs=1)
    assert json.loads(path.read_text())["blocks"] == stored["blocks"] and measured(tmp_path, promises) == rates
    path.write_text(json.dumps(stored | {"fingerprint": "of other code"}))
    assert promises[0].name not in measured(tmp_path, promises)
    assert run(tmp_path, promises, jobs=1) and measured(tmp_path, promises) == rates


def test_fingerprints_follow_settings_and_code_but_not_words(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = next(promise.simulation for promise in PROMISES if promise.name == "sample-size.donors-40.finds")
    places = code.reached(simulation.trial.__module__, simulation.trial.__name__)
    assert ("holdfast.stats.core.bootstrap", "deviations") in places
    assert ("holdfast.core.types", "RESAMPLES") in places
    assert ("holdfast.stats.core.bootstrap", "donor_noise") not in places
    before = code.fingerprint(simulation)
    assert code.fingerprint(replace(simulation, settings=simulation.settings | {"donors": 41})) != before
    plain, words, other = (
        code.without_words(ast.parse(f"def f(x):\n    {text}\n").body[0])
        for text in ("return x", "'Other words.'; return x  # and more", "return -x")
    )
    assert plain == words != other
    monkeypatch.setattr(code, "_text", lambda place: "other code")
    assert code.fingerprint(simulation) != before
