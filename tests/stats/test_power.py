"""Sample sizes against simulated McNemar tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import table

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import reduce
from holdfast.stats.models.power import (
    detectable,
    donor_advice,
    donors_needed,
    donors_of,
    photos_needed,
    photos_to_settle,
    sample_sizes,
    worth,
)


def test_a_worked_example() -> None:
    # (1.959964 √0.2 + 0.841621 √(0.2 − 0.0025))² / 0.0025 = 625.55
    assert photos_needed(0.05, discordant_share=0.2) == 626


@given(st.floats(0.005, 0.5), st.floats(0, 1), st.floats(0.5, 0.95))
def test_detectable_undoes_photos_needed(difference: float, share: float, power: float) -> None:
    n = photos_needed(difference, discordant_share=share, power=power)
    found = detectable(n, discordant_share=share, power=power)
    assert found <= difference + 1e-9
    if n > 2:
        assert detectable(n - 1, discordant_share=share, power=power) >= difference - 1e-9


@given(st.floats(0.01, 0.2), st.floats(0.2, 0.9))
def test_more_is_needed_for_less(difference: float, share: float) -> None:
    assert photos_needed(difference / 2, discordant_share=share) > photos_needed(difference, discordant_share=share)
    assert photos_needed(difference, discordant_share=share) == photos_needed(-difference, discordant_share=share)


def test_too_few_photos_detect_nothing() -> None:
    assert detectable(1, discordant_share=0.5) == 1


def test_a_row_for_each_drop() -> None:
    drops = pd.DataFrame(
        {
            "model": "m",
            "trained_on": "",
            "condition": ["grey", "blur"],
            "n": [120, 120],
            "lost": [6, 40],
            "gained": [0, 8],
        }
    )
    frame = sample_sizes(drops, difference=0.02)
    assert frame["discordant_share"].tolist() == [0.05, 0.4]
    assert frame["photos_needed"].tolist() == [photos_needed(0.02, discordant_share=share) for share in (0.05, 0.4)]
    assert frame["detectable"].is_monotonic_increasing


@pytest.mark.parametrize("bad", [{"difference": 0.0}, {"discordant_share": 1.2}, {"power": 1.0}, {"alpha": 0.0}])
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UserError):
        photos_needed(**({"difference": 0.02, "discordant_share": 0.1} | bad))


def test_an_estimate_at_the_margin_is_never_settled() -> None:
    assert photos_to_settle(100, value=0.05, low=0.0, high=0.1, margin=0.05) == np.inf


@given(st.floats(0.03, 0.3), st.floats(0.1, 0.6), st.integers(30, 2000), st.floats(0, 0.05))
def test_photos_that_share_donors_are_worth_less(difference: float, share: float, donors: int, rho: float) -> None:
    own = photos_needed(difference, discordant_share=share)
    try:
        n = photos_needed(difference, discordant_share=share, donors=donors, donor_share=rho)
    except UserError as error:
        assert "take more than" in str(error) and own * rho * 1.2 > donors  # few donors cost up to a fifth
        return
    assert n >= own
    got = detectable(n, discordant_share=share, donors=donors, donor_share=rho)
    assert got <= difference + 1e-9 and detectable(n, discordant_share=share) <= got


def test_donors_that_are_enough() -> None:
    assert worth(100, 1) == 0 and worth(100, 10**9) == pytest.approx(1, abs=1e-6)
    assert worth(120, 40, donor_share=0.0) == worth(40, 40)
    for photos in (24, 120, 240, 1000):
        needed = donors_needed(photos)
        assert worth(photos, needed) >= 0.8 > worth(photos, needed - 1)
    assert (donors_needed(120), donors_needed(240), donors_needed(1000)) == (41, 75, 292)
    assert donor_advice(120, 41) == "" == donor_advice(120, 0)
    assert donor_advice(120, 12).startswith("120 images share 12 backgrounds; with 41 or more")


def test_sizes_count_donors() -> None:
    common = {"model": "m", "label": "x", "correct": True}
    rows = [common | {"condition": "grey", "source_id": f"s{n}"} for n in range(30)]
    rows += [
        common | {"condition": "random_background", "source_id": f"s{n}", "donor_id": f"d{n % 5}", "donor_label": "y"}
        for n in range(30)
    ]
    donors = donors_of(reduce(table(rows)))
    assert donors == {"random_background": 5}
    drops = pd.DataFrame({"model": "m", "trained_on": "", "condition": ["grey", "random_background"], "n": 120,
                          "lost": 12, "gained": 4})  # fmt: skip
    frame = sample_sizes(drops, donors=donors)
    assert frame["donors"].tolist() == [0, 5] and frame["detectable"].is_monotonic_increasing
    assert frame["photos_needed"].nunique() == 1
