"""Verdicts, acceptance, agreement, reliability and naturalness, against brute force and simulations."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import fleiss_kappa
from statsmodels.stats.proportion import proportion_confint

from holdfast.core.errors import UserError
from holdfast.core.votes import decide, parse_rule, read_votes
from holdfast.stats.people.votes import accept, acceptance, agreement_of, answers, naturalness, reliability
from made_votes import NATURAL, QUALITY, SHOWS, make_votes

yes_no = st.sampled_from(["yes", "no"])


@given(yes_no, yes_no)
def test_rules_of_two_questions(recognisable: str, usable: str) -> None:
    said = {"recognisable": recognisable, "usable": usable}
    one, other = recognisable == "yes", usable == "yes"
    for text, wanted in (
        ("recognisable", one),
        ("usable", other),
        ("recognisable|usable", one or other),
        ("recognisable & usable", one and other),
        ("recognisable&usable|usable", other),
    ):
        assert parse_rule(text, QUALITY).says_yes(said) == wanted


def test_rules_of_ratings_and_mistakes() -> None:
    assert [parse_rule("natural", NATURAL).says_yes({"natural": grade}) for grade in "12345"] == [0, 0, 1, 1, 1]
    assert [parse_rule("natural>=4", NATURAL).says_yes({"natural": grade}) for grade in "12345"] == [0, 0, 0, 1, 1]
    for text in (
        "",
        "sharp",
        "recognisable||usable",
        "recognisable>=maybe",
        "recognisable>=yes",
        "recognisable+usable",
    ):
        with pytest.raises(UserError):
            parse_rule(text, QUALITY)
    with pytest.raises(UserError, match="no answer '6'"):
        parse_rule("natural>=6", NATURAL)


@given(st.integers(1, 12), st.data())
def test_a_decision_stands_whatever_the_missing_people_say(of: int, data: st.DataObject) -> None:
    at_least = data.draw(st.integers(1, of))
    votes = data.draw(st.integers(0, of))
    yes = data.draw(st.integers(0, votes))
    ends = {yes + more >= at_least for more in range(of - votes + 1)}
    expected = "undecided" if len(ends) == 2 else "accepted" if ends == {True} else "rejected"
    assert decide(yes, votes, at_least=at_least, of=of) == expected


def test_more_people_than_wanted_need_the_same_share() -> None:
    assert decide(6, 10, at_least=3, of=5) == "accepted"
    assert decide(5, 10, at_least=3, of=5) == "rejected"
    assert decide(4, 6, at_least=3, of=5) == "accepted"


def crowd(images: int, people: int, chance: float, seed: int = 0) -> list[dict[str, object]]:
    """Every person judges every image of a known truth, and errs with a chance; four images a prompt."""
    rng = np.random.default_rng(seed)
    truth = rng.random(images) < 0.6
    return [
        {
            "sample_id": f"i{image}", "source_id": f"p{image // 4}", "person": person, "nuisance": f"n{image % 3}",
            "label": f"c{image % 2}", "asked": f"c{image % 2}",
            "answers": {"shows": "yes" if truth[image] != (rng.random() < chance) else "no"},
        }
        for image, person in itertools.product(range(images), range(people))
    ]  # fmt: skip


def test_acceptance_against_counting() -> None:
    rows = crowd(40, 5, 0.25)
    images = accept(make_votes(rows))
    frame = pd.DataFrame([{**row, "yes": row["answers"]["shows"] == "yes"} for row in rows])
    yes = frame.groupby("sample_id")["yes"].sum()
    assert images.set_index("sample_id")["yes"].to_dict() == yes.to_dict()
    assert set(images.loc[images["decision"] == "accepted", "sample_id"]) == set(yes.index[yes >= 3])
    assert np.allclose(images["share_shows"], images["yes"] / 5)
    strict = accept(make_votes(rows), at_least=5)
    assert set(strict.loc[strict["decision"] == "accepted", "sample_id"]) == set(yes.index[yes == 5])
    table = acceptance(images)
    overall = table[table["by"] == ""].iloc[0]
    assert overall["estimate"] == pytest.approx((yes >= 3).mean()) and overall["prompts"] == 10
    wilson = proportion_confint((yes >= 3).sum(), 40, method="wilson")
    assert overall["low"] <= wilson[0] + 1e-9 and overall["high"] >= wilson[1] - 1e-9  # prompts are fewer than images
    nuisances = table[table["by"] == "nuisance"].set_index("value")
    for value, part in frame.drop_duplicates("sample_id").groupby("nuisance"):
        assert nuisances.loc[f"background: {value}", "accepted"] == (yes[part["sample_id"]] >= 3).sum()
    assert set(table["by"]) == {"", "category", "nuisance"}  # there is one kind, no generator, no model


def test_undecided_and_discarded_images_are_told() -> None:
    rows = crowd(6, 2, 0.0)
    rows += [
        {"sample_id": "lost", "person": 9, "answers": {"shows": "yes"}, "counts": False, "task_status": "discarded"},
        {"sample_id": "control", "person": 9, "answers": {"shows": "yes"}, "counts": False, "role": "positive"},
    ]
    images = accept(make_votes(rows)).set_index("sample_id")
    assert "control" not in images.index
    assert images.loc["lost", ["votes", "yes", "decision"]].tolist() == [0, 0, "undecided"]
    overall = acceptance(images.reset_index()).iloc[0]
    assert overall["undecided"] == 7 and np.isnan(overall["estimate"])  # two of five voted, three could still decide


def test_agreement_is_fleiss_and_counting() -> None:
    rows = crowd(30, 5, 0.2, seed=3)
    table = agreement_of(make_votes(rows)).set_index("measure")
    frame = pd.DataFrame([{**row, "answer": row["answers"]["shows"]} for row in rows])
    tally = frame.groupby(["sample_id", "answer"]).size().unstack(fill_value=0)
    assert table.loc["fleiss_kappa", "estimate"] == pytest.approx(fleiss_kappa(tally.to_numpy()))
    pairs = [
        (one == other).mean()
        for _, own in frame.groupby("sample_id")
        for one, other in [np.array(list(itertools.combinations(own["answer"], 2))).T]
    ]
    assert table.loc["percent_agreement", "estimate"] == pytest.approx(np.mean(pairs))
    assert table["raters"].unique().tolist() == [5]
    both = [{**row, "answers": {"recognisable": row["answers"]["shows"], "usable": "no"}} for row in rows]
    found = agreement_of(make_votes(both, questions=QUALITY))
    verdict = found[(found["question"] == "verdict") & (found["measure"] == "fleiss_kappa")]["estimate"].item()
    assert verdict == pytest.approx(table.loc["fleiss_kappa", "estimate"])
    told = answers(make_votes(both, questions=QUALITY)).set_index(["question", "answer"])["votes"]
    assert told[("usable", "no")] == 150 and told[("usable", "yes")] == 0


def test_reliability_finds_who_answers_by_chance() -> None:
    rng = np.random.default_rng(5)
    rows = crowd(60, 6, 0.1, seed=4)
    for row in rows:
        if row["person"] == 2:
            row["answers"] = {"shows": str(rng.choice(["yes", "no"]))}
        if row["person"] == 3:
            row["answers"] = {"shows": "yes"}
        row["seconds"] = 1.0 + row["person"]
    for person in range(6):
        for number in range(10):
            right = person != 2 or number % 2 == 0
            rows.append(
                {
                    "sample_id": f"control {number}", "person": person, "role": "negative", "counts": False,
                    "expected": {"shows": ["no"]}, "answers": {"shows": "no" if right else "yes"},
                }
            )  # fmt: skip
            again = next(row for row in rows if row["person"] == person and row["sample_id"] == f"i{number}")
            said = again["answers"]["shows"]
            other = said if person != 2 or number < 7 else {"yes": "no", "no": "yes"}[said]
            rows.append(again | {"role": "repeat", "counts": False, "answers": {"shows": other}})
    table = reliability(make_votes(rows)).set_index("person")
    assert table.index[table["by_chance"]].tolist() == sorted([2, 3], key=lambda one: table.loc[one, "sentinel_rate"])
    assert table["sentinels"].tolist() == [10] * 6 and table.loc[2, "sentinel_rate"] == 0.5
    low, high = proportion_confint(5, 10, method="wilson")
    assert table.loc[2, ["sentinel_low", "sentinel_high"]].tolist() == pytest.approx([low, high])
    assert table.loc[2, ["repeats", "consistent"]].tolist() == [10, 7] and table.loc[0, "repeat_rate"] == 1
    assert table.loc[4, "seconds"] == 5.0 and table.loc[3, "yes"] == 1
    # The others' majority with this person left out, counted by hand.
    frame = pd.DataFrame([{**row, "yes": row["answers"]["shows"] == "yes"} for row in rows if row.get("counts", True)])
    others = frame[frame["person"] != 0].groupby("sample_id")["yes"].mean()
    mine = frame[frame["person"] == 0].set_index("sample_id")["yes"]
    told = others[others != 0.5]
    assert table.loc[0, "agreement"] == pytest.approx(((told > 0.5) == mine[told.index]).mean())


def test_a_control_of_the_same_name_is_no_first_showing() -> None:
    """Pools may number their images as copies of control images are numbered."""
    common = {"person": 1, "sample_id": "00003"}
    votes = make_votes(
        [
            common | {"role": "positive", "counts": False, "expected": {"shows": ["yes"]}, "answers": {"shows": "yes"}},
            common | {"answers": {"shows": "no"}},
            common | {"role": "repeat", "counts": False, "answers": {"shows": "no"}},
        ]
    )
    assert reliability(votes).loc[0, ["repeats", "consistent"]].tolist() == [1, 1]


def test_few_answers_are_never_called_chance() -> None:
    table = reliability(make_votes(crowd(12, 5, 0.5)))
    assert not table["by_chance"].any()


def ratings(images: int, people: int, seed: int) -> list[dict[str, object]]:
    """Two models whose images differ by one grade; people differ by a habit of their own."""
    rng = np.random.default_rng(seed)
    habit = rng.normal(0, 0.4, people)
    rows = []
    for image in range(images):
        base = rng.normal(3.5 - image % 2, 0.5)
        for person in range(people):
            grade = int(np.clip(round(base + habit[person] + rng.normal(0, 0.5)), 1, 5))
            rows.append(
                {
                    "sample_id": f"i{image}", "person": person, "model": f"m{image % 2}", "generator": "g",
                    "answers": {"natural": str(grade)},
                }
            )  # fmt: skip
    return rows


def test_naturalness_covers_the_true_means() -> None:
    hits = {"m0": 0, "m1": 0}
    for seed in range(40):
        table = naturalness(make_votes(ratings(30, 12, seed), questions=NATURAL), resamples=200, seed=seed)
        means = table[table["by"] == "model"].set_index("value")
        for name, true in (("m0", 3.5), ("m1", 2.5)):
            hits[name] += bool(means.loc[name, "low"] <= true <= means.loc[name, "high"])
    assert min(hits.values()) >= 35  # of 40; grades cut at 1 and 5 shift the mean by less than 0.02
    rows = ratings(30, 12, 0)
    grades = pd.DataFrame([{**row, "grade": int(row["answers"]["natural"])} for row in rows])
    table = naturalness(make_votes(rows, questions=NATURAL), resamples=50)
    assert table[table["by"] == "model"].set_index("value")["estimate"].to_dict() == pytest.approx(
        grades.groupby("model")["grade"].mean().to_dict()
    )
    assert (table["people"] == 12).all() and set(table["by"]) == {"", "model"}
    with pytest.raises(UserError, match="needs a question"):
        naturalness(make_votes(crowd(2, 2, 0)))


def test_reliability_of_ratings() -> None:
    rows = ratings(40, 6, 1)
    rng = np.random.default_rng(0)
    for row in rows:
        if row["person"] == 4:
            row["answers"] = {"natural": str(rng.integers(1, 6))}
    table = reliability(make_votes(rows, questions=NATURAL)).set_index("person")
    assert table.index[table["by_chance"]].tolist() == [4]
    assert table.loc[0, "agreement"] > table.loc[4, "agreement"]


def test_files_of_votes(tmp_path: Path) -> None:
    votes = make_votes(crowd(4, 5, 0.1), at_least=4)
    pq.write_table(votes.to_arrow(), tmp_path / "votes.parquet")
    again = read_votes(tmp_path)
    assert (again.rule, again.at_least, again.of, again.questions) == ("shows", 4, 5, SHOWS)
    assert again.tallies() == votes.tallies()
    pq.write_table(votes.table.replace_schema_metadata({}), tmp_path / "bare.parquet")
    (tmp_path / "no.parquet").write_bytes(b"no Parquet")
    metadata = votes.to_arrow().schema.metadata | {b"holdfast_schema_version": b"2"}
    pq.write_table(votes.to_arrow().replace_schema_metadata(metadata), tmp_path / "newer.parquet")
    for name, match in (
        ("bare.parquet", "which questions"),
        ("no.parquet", "not a file of votes"),
        ("gone", "no votes"),
        ("newer.parquet", r"newer\.parquet was written by a newer Holdfast"),
    ):
        with pytest.raises(UserError, match=match):
            read_votes(tmp_path / name)
    with pytest.raises(UserError, match="1 to 5"):
        votes.with_rule(at_least=6)
