"""Modes of failure on simulated answers whose causes are known, and the evidence against other ways to the numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep

from holdfast.stats.hard.failure_modes import (
    LOOK_ALIKE,
    UNEXPLAINED,
    ExplainedAnswers,
    asked_factors,
    association,
    by_chance,
    explain,
    measure,
    modes_of,
    table,
    tied,
)

CLASSES = [f"class{number}" for number in range(8)]
PLACES = [f"place{number}" for number in range(10)]
WEAVES = [f"weave{number}" for number in range(6)]


def world(repeats: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows = [
        {"category": label, "kind": kind, "nuisance": value, "prompt_id": f"{label} {value}"}
        for label in CLASSES
        for kind, values in (("background", PLACES), ("texture", WEAVES))
        for value in values
        for _ in range(repeats)
    ]
    images = pd.DataFrame(rows, index=[f"image{place}" for place in range(len(rows))])
    return images, asked_factors(list(images["kind"]), list(images["nuisance"]), images.index)


Answer = Callable[[pd.Series, np.random.Generator], str]


def answered(images: pd.DataFrame, seed: int, **models: Answer) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {name: [answer(row, rng) for _, row in images.iterrows()] for name, answer in models.items()},
        index=images.index,
    )


def by_background(row: pd.Series, rng: np.random.Generator) -> str:
    """The classes have a place each, and this model believes the place half of the time."""
    home = row["nuisance"].replace("place", "class")
    return home if home in CLASSES and rng.random() < 0.5 else row["category"]


def by_texture(row: pd.Series, rng: np.random.Generator) -> str:
    return "class2" if row["nuisance"] == "weave1" and rng.random() < 0.6 else row["category"]


def by_look(row: pd.Series, rng: np.random.Generator) -> str:
    return "class1" if row["category"] == "class0" and rng.random() < 0.4 else row["category"]


def by_luck(row: pd.Series, rng: np.random.Generator) -> str:
    return str(rng.choice(CLASSES)) if rng.random() < 0.1 else row["category"]


@pytest.mark.parametrize("seed", range(3))
def test_causes_are_found(seed: int) -> None:
    images, factors = world()
    said = answered(images, seed, place=by_background, weave=by_texture, look=by_look, luck=by_luck)
    found = explain(images, said, factors, list(said.columns))
    shares = found.groupby("model")["mode"].value_counts(normalize=True)
    assert shares["place"]["background"] > 0.95
    assert shares["weave"]["texture"] > 0.95
    assert shares["look"][LOOK_ALIKE] > 0.95
    assert shares["luck"][UNEXPLAINED] > 0.9
    assert len(found) == int(sum((said[model] != images["category"]).sum() for model in said))
    place = found[(found["model"] == "place") & (found["mode"] == "background")]
    assert (place["value"].str.replace("place", "class") == place["said"]).all()
    assert place["rate"].between(0.2, 0.8).all() and (place["base"] < 0.05).all() and (place["odds_ratio"] > 5).all()


def test_where_two_explain_the_larger_does_and_the_other_is_named() -> None:
    images, factors = world()

    def both(row: pd.Series, rng: np.random.Generator) -> str:
        if row["category"] == "class0" and rng.random() < 0.25:
            return "class1"
        return "class1" if row["nuisance"] == "place1" and rng.random() < 0.9 else row["category"]

    said = answered(images, 0, both=both)
    found = explain(images, said, factors, ["both"]).set_index("sample_id")
    own = images.index[(images["category"] == "class0") & (images["nuisance"] == "place1") & (said["both"] == "class1")]
    assert len(own) and (found.loc[own, "mode"] == "background").all() and (found.loc[own, "also"] == LOOK_ALIKE).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 143), st.sampled_from(CLASSES))
def test_no_image_and_no_prompt_explains_itself(place: int, answer: str) -> None:
    images, factors = world()
    said = pd.DataFrame({"one": images["category"]})
    prompt = images["prompt_id"].iloc[place]
    said.loc[images["prompt_id"] == prompt, "one"] = answer
    found = explain(images, said, factors, ["one"])
    assert set(found["mode"]) <= {UNEXPLAINED}


def test_evidence_is_from_other_classes_only() -> None:
    """A class that is always wrong in one place is no evidence that the place misleads."""
    images, factors = world()
    said = pd.DataFrame({"one": images["category"]})
    said.loc[(images["category"] == "class3") & (images["nuisance"] == "place2"), "one"] = "class5"
    assert set(explain(images, said, factors, ["one"])["mode"]) == {UNEXPLAINED}
    for label in CLASSES[:3]:
        said.loc[(images["category"] == label) & (images["nuisance"] == "place2"), "one"] = "class5"
    found = explain(images, said, factors, ["one"])
    assert set(found["mode"]) == {"background"} and set(found["n"]) == {18}  # six other classes, three images each


def test_the_interval_is_newcombes_where_every_image_is_a_prompt() -> None:
    rng = np.random.default_rng(0)
    inside = np.arange(600) < 150
    answered_so = rng.random(600) < np.where(inside, 0.2, 0.03)
    found = association(answered_so, inside, ~inside, np.arange(600), level=0.99)
    hits, others = int(answered_so[inside].sum()), int(answered_so[~inside].sum())
    low, high = confint_proportions_2indep(hits, 150, others, 450, method="newcomb", compare="diff", alpha=0.01)
    # Ours takes n/(n − 1) into account, and errs wide by so much.
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)
    assert found.excess == pytest.approx(hits / 150 - others / 450)
    odds = (hits + 0.5) / (150 - hits + 0.5) / ((others + 0.5) / (450 - others + 0.5))
    assert found.odds_ratio == pytest.approx(odds) and found.explains


def test_images_of_one_prompt_count_as_one() -> None:
    inside = np.arange(600) < 60
    answered_so = inside & (np.arange(600) < 12)
    alone, together = (association(answered_so, inside, ~inside, np.arange(600) // k, level=0.95) for k in (1, 12))
    assert alone.explains and together.low < alone.low


def test_chance_gives_almost_nothing() -> None:
    images, factors = world()
    said = answered(images, 4, place=by_background, luck=by_luck)
    chance = by_chance(images, said, factors, ["place", "luck"], shuffles=3).set_index(["model", "mode"])["by_chance"]
    assert set(chance.index.get_level_values(1)) == {"background", "texture"} and (chance < 0.05).all()


def test_the_table_counts_and_its_shares_add_up() -> None:
    images, factors = world()
    said = answered(images, 5, place=by_background, luck=by_luck)
    found = explain(images, said, factors, ["place", "luck"], wanted=images["kind"] == "background")
    assert set(images.loc[found["sample_id"], "kind"]) == {"background"}
    counted = table(found, images["prompt_id"], modes_of(factors))
    assert (counted.groupby("model")["estimate"].sum() == 1).all()
    assert (counted.groupby("model")["answers"].sum() == counted.groupby("model")["n"].first()).all()
    assert ((counted["low"] <= counted["estimate"]) & (counted["estimate"] <= counted["high"])).all()
    assert list(counted["mode"])[:4] == ["background", "texture", LOOK_ALIKE, UNEXPLAINED]


def test_unknown_surroundings_leave_look_alikes() -> None:
    images, _ = world()
    nothing = asked_factors([""] * len(images), [""] * len(images), images.index)
    said = answered(images, 6, look=by_look, place=by_background)
    found = explain(images, said, nothing, ["look", "place"])
    assert set(found["mode"]) <= {LOOK_ALIKE, UNEXPLAINED} and modes_of(nothing) == [LOOK_ALIKE, UNEXPLAINED]
    looks = found[found["model"] == "look"]
    assert (looks["mode"] == LOOK_ALIKE).mean() > 0.95
    assert set(looks["n"].dropna()) == {3 * (len(PLACES) + len(WEAVES)) - 3}  # all images of the class but its prompt's
    assert (found[found["model"] == "place"]["mode"] == UNEXPLAINED).mean() > 0.9


def test_what_training_tied_is_counted() -> None:
    images, factors = world()
    said = answered(images, 7, place=by_background, luck=by_luck)
    homes = {("background", label): label.replace("class", "place") for label in CLASSES}
    every = pd.Series(True, images.index)
    made = measure(
        ExplainedAnswers("made", images, said, factors, ("place", "luck"), every, {"place": homes}, {}), shuffles=1
    )
    rows = made.by_model.set_index(["model", "mode"])
    assert rows.loc[("place", "background"), "tied"] == rows.loc[("place", "background"), "answers"] > 50
    assert np.isnan(rows.loc[("luck", "background"), "tied"]) and np.isnan(rows.loc[("place", LOOK_ALIKE), "tied"])
    assert set(made.by_group["group"]) == {"background", "texture"}
    assert tied(made.explained.head(0), factors, homes) == []
