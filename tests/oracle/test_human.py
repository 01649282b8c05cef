"""People as an oracle: verdicts from exported votes, by pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.protocols import Oracle, TensorOracle
from holdfast.data.labels import map_labels
from holdfast.models import load_classifier
from holdfast.oracle import card, kinship, load_oracle
from holdfast.testing import check_oracle
from holdfast.testing.classifier import _ORACLE_SIZES, _pictures
from made_votes import QUALITY, make_votes

NAMES = ("ant", "bee")


def image(value: int) -> np.ndarray:
    return np.full((3, 4, 3), value, np.uint8)


def save(folder: Path, given: dict[int, tuple[str, int, int]], **options: object) -> Path:
    """Image value → class asked, who say recognisable, who say usable; of five people."""
    rows = [
        {
            "sample_id": f"image {value}", "person": person, "label": asked, "asked": asked,
            "pixels_sha256": array_sha256(image(value)),
            "answers": {
                "recognisable": "yes" if person < recognisable else "no",
                "usable": "yes" if person >= 5 - usable else "no",
            },
        }
        for value, (asked, recognisable, usable) in given.items()
        for person in range(5)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    pq.write_table(make_votes(rows, questions=QUALITY, **options).to_arrow(), folder / "votes.parquet")
    return folder


def oracle_of(text: str) -> Oracle:
    return load_oracle(text, classes=NAMES, load_classifier=load_classifier, map_labels=map_labels)


def test_verdicts_follow_the_votes(tmp_path: Path) -> None:
    votes = save(tmp_path / "votes", {1: ("ant", 2, 2), 2: ("ant", 2, 0), 3: ("bee", 5, 5)})
    oracle = oracle_of(f"human:{votes}")
    given = oracle.judge([image(1), image(2), image(3), image(3), image(9)], ["ant", "ant", "bee", "ant", "ant"])
    assert [one.accepted for one in given] == [True, False, True, False, False]  # four of five say either of image 1
    assert [one.score for one in given] == pytest.approx([0.8, 0.4, 1, 0, 0])
    assert [one.margin for one in given] == pytest.approx([0.6, -0.2, 1, -1, -1])
    assert [one.reason for one in given] == [
        "", "2 of 5 people accept it, 3 of 5 have to", "", "people were asked whether it is a bee, not a ant",
        "no one judged this image",
    ]  # fmt: skip
    assert oracle.knows([image(1), image(9), image(3)], ["ant", "ant", "ant"]) == [True, False, False]
    assert not isinstance(oracle, TensorOracle)


def test_rule_and_threshold_in_the_name(tmp_path: Path) -> None:
    votes = save(tmp_path / "votes", {1: ("ant", 4, 3)})
    plain, both = oracle_of(f"human:{votes}"), oracle_of(f"human:{votes}?rule=recognisable%26usable&at_least=2")
    assert plain.judge([image(1)], ["ant"])[0].score == 1.0
    verdict = both.judge([image(1)], ["ant"])[0]
    assert verdict.accepted and verdict.score == pytest.approx(0.4)
    assert not oracle_of(f"human:{votes}?rule=recognisable%26usable").judge([image(1)], ["ant"])[0].accepted
    assert plain.fingerprint != both.fingerprint
    for options in ("at_least=9", "rule=sharp", "space=all", "at_least=some"):
        with pytest.raises(UserError):
            oracle_of(f"human:{votes}?{options}")
    with pytest.raises(UserError, match="no votes at"):
        oracle_of(f"human:{tmp_path / 'gone'}")


def test_the_contract_and_the_card(tmp_path: Path) -> None:
    pictures = _pictures(_ORACLE_SIZES)
    rows = [
        {
            "sample_id": f"image {place}", "person": person, "asked": NAMES[place % 2], "label": NAMES[place % 2],
            "pixels_sha256": array_sha256(picture), "answers": {"shows": "yes" if place % 3 else "no"},
        }
        for place, picture in enumerate(pictures[:-1])  # no one has judged the last
        for person in range(5)
    ]  # fmt: skip
    folder = tmp_path / "resnet50-votes"
    folder.mkdir()
    pq.write_table(make_votes(rows).to_arrow(), folder / "votes.parquet")
    oracle = oracle_of(f"human:{folder}")
    check_oracle(oracle)
    said = dict(card(oracle))
    assert "3 of 5 have to accept" in said["What it is"] and said["Training data"] == "none: people looked"
    assert kinship("timm:resnet50", oracle.name) == []  # the folder's name makes no one a relative
