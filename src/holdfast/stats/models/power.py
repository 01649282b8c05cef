"""How many photos a difference needs before it can be seen, and what can be seen with those there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


def photos_needed(difference: float = 0.02, *, discordant_share: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Return the photos that a paired comparison needs to find a difference of accuracies.

    n = (z₁₋α/₂ √ψ + z_power √(ψ − δ²))² / δ² (Miettinen 1968, Connett, Smith and McHugh 1987), δ the difference and ψ
    the share of photos that one side answers rightly and the other wrongly; two-sided McNemar test. A difference δ
    takes at least δ discordant photos, so ψ is raised to δ where less was observed.

    Args:
        difference: of accuracies, 0..1; its sign does not matter.
        discordant_share: observed share of photos that change from right to wrong or back, 0..1.
        power: chance of finding it.
        alpha: level of the test.
    """
    return math.ceil(_photos(abs(difference), discordant_share, power, alpha) - 1e-9)


def detectable(n: int, *, discordant_share: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest difference of accuracies that ``n`` photos find with this power; 1 where none is found."""
    from scipy.optimize import brentq

    if n < 1:
        raise UserError("there must be a photo at least to detect anything with")
    if _photos(1.0, discordant_share, power, alpha) > n:
        return 1.0
    return float(
        brentq(lambda difference: _photos(difference, discordant_share, power, alpha) - n, 1e-9, 1.0, xtol=1e-12)
    )


def photos_to_settle(
    n: int, *, value: float, low: float, high: float, margin: float, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the photos, in all, with which an interval like this one would lie on one side of a margin.

    The interval narrows with the root of the number of photos, so n' = n (s (z₁₋α/₂ + z_power) / |value − margin|)²,
    s = (high − low) / 2 z₁₋α/₂. Unlike ``photos_needed`` it takes over whatever made the interval wide: photos that
    share a background, classes of unlike sizes. Infinite where the estimate is the margin itself.

    Args:
        n: photos behind the interval.
        value: the estimate.
        low: its interval's lower end.
        high: its upper end.
        margin: the border.
        power: chance that the new interval keeps clear of it, if the estimate is the truth.
        alpha: one minus the level of the interval.
    """
    from scipy.stats import norm

    distance = abs(value - margin)
    if distance < 1e-9:
        return math.inf
    limit = float(norm.ppf(1 - alpha / 2))
    error = (high - low) / (2 * limit)
    return float(math.ceil(n * (error * (limit + float(norm.ppf(power))) / distance) ** 2 - 1e-9))


def photo_range(
    n: int, *, value: float, low: float, high: float, margin: float, power: float = 0.8, alpha: float = 0.05
) -> tuple[int, int] | None:
    """Return the fewest and the most photos, in all, of ``photos_to_settle`` over the middle half of the estimate.

    The number hangs on the distance of the estimate from the margin, which is itself uncertain, so it is computed for
    both ends of the estimate's 50 % interval. None where these ends lie on both sides of the margin, or where the most
    is more than ten times the fewest: such a range advises nobody.
    """
    from scipy.stats import norm

    half = float(norm.ppf(0.75)) * (high - low) / (2 * float(norm.ppf(1 - alpha / 2)))
    away = half if value > margin else -half
    if abs(value - margin) <= half:
        return None
    fewest, most = (
        photos_to_settle(n, value=end, low=low, high=high, margin=margin, power=power, alpha=alpha)
        for end in (value + away, value - away)
    )
    return (int(fewest), int(most)) if most <= 10 * fewest else None


def sample_sizes(
    drops: pd.DataFrame, *, difference: float = 0.02, power: float = 0.8, alpha: float = 0.05
) -> pd.DataFrame:
    """Return for each row of ``drops`` the photos ``difference`` would need, and what its own number can detect.

    Columns: model, trained_on, condition, ``n``, ``discordant_share`` = (lost + gained) / n, ``photos_needed`` and
    ``detectable`` (a difference, 0..1).
    """
    frame = drops[["model", "trained_on", "condition", "n"]].copy()
    frame["discordant_share"] = (drops["lost"] + drops["gained"]) / drops["n"]
    shares = frame["discordant_share"]
    frame["photos_needed"] = [
        photos_needed(difference, discordant_share=share, power=power, alpha=alpha) for share in shares
    ]
    frame["detectable"] = [
        detectable(int(n), discordant_share=share, power=power, alpha=alpha)
        for n, share in zip(frame["n"], shares, strict=True)
    ]
    return frame


def _photos(difference: float, discordant_share: float, power: float, alpha: float) -> float:
    from scipy.stats import norm

    if not 0 < difference <= 1:
        raise UserError(f"a difference of accuracies lies between 0 and 1 and is not 0; {difference} does not")
    if not 0 <= discordant_share <= 1:
        raise UserError(f"a share lies between 0 and 1, {discordant_share} does not")
    if not (0 < alpha < 1 and alpha / 2 < power < 1):
        raise UserError("alpha lies between 0 and 1, power between alpha / 2 and 1")
    share = max(discordant_share, difference)
    under_null = float(norm.ppf(1 - alpha / 2)) * math.sqrt(share)
    under_truth = float(norm.ppf(power)) * math.sqrt(max(share - difference**2, 0.0))
    return (under_null + under_truth) ** 2 / difference**2
