"""Sample sizes against simulated McNemar tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from holdfast.core.errors import UserError
from holdfast.stats.models.power import detectable, photos_needed, photos_to_settle, sample_sizes


@pytest.mark.parametrize(("difference", "share", "power"), [(0.02, 0.05, 0.8), (0.05, 0.2, 0.9), (0.1, 0.3, 0.8)])
def test_the_photos_asked_for_give_the_power_promised(difference: float, share: float, power: float) -> None:
    n = photos_needed(difference, discordant_share=share, power=power)
    rng = np.random.default_rng(31)
    up, down = (share + difference) / 2, (share - difference) / 2
    lost, gained, _ = rng.multinomial(n, [up, down, 1 - share], 20_000).T
    z = (lost - gained) / np.sqrt(np.maximum(lost + gained, 1))
    assert np.mean(np.abs(z) > norm.ppf(0.975)) == pytest.approx(power, abs=0.015)


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


@pytest.mark.parametrize("value", [0.08, 0.02, -0.1])
def test_the_photos_that_settle_an_interval_do_so_as_often_as_promised(value: float) -> None:
    n, spread, margin = 60, 0.3, 0.05
    half = norm.ppf(0.975) * spread / np.sqrt(n)
    needed = photos_to_settle(n, value=value, low=value - half, high=value + half, margin=margin)
    estimates = np.random.default_rng(7).normal(value, spread / np.sqrt(needed), 20_000)
    new_half = norm.ppf(0.975) * spread / np.sqrt(needed)
    clear = estimates - new_half > margin if value > margin else estimates + new_half < margin
    assert clear.mean() == pytest.approx(0.8, abs=0.015)


def test_an_estimate_at_the_margin_is_never_settled() -> None:
    assert photos_to_settle(100, value=0.05, low=0.0, high=0.1, margin=0.05) == np.inf
