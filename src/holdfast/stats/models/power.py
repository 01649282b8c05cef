"""How many images and donors a difference needs before it can be seen, and what can be seen with those there are."""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_optimize, scipy_stats
from holdfast.stats.core.reduce import Counts

DONOR_SHARE = 0.1
"""Part of the variance of images' differences that images on one donor share; a guess, if no one has measured it."""

WORTH = 0.8  # Donors are enough if images that share them are worth this share of images with donors of their own


def worth(
    photos: float, donors: float, *, donor_share: float = DONOR_SHARE, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return what an image that shares its donor is worth, 0..1, where one with a donor of its own is worth 1.

    1 / (1 + (photos/donors − 1) ρ), ρ the ``donor_share``, times ((z₁₋α/₂ + z_power) / (t₁₋α/₂ + z_power))² with
    donors − 1 degrees of freedom, because few donors estimate their own spread badly.
    """
    if donors < 2:
        return 0.0
    limit, reserve = _quantiles(power, alpha)
    few = ((limit + reserve) / (float(scipy_stats.t.ppf(1 - alpha / 2, donors - 1)) + reserve)) ** 2
    return few / (1 + max(photos / donors - 1, 0.0) * donor_share)


def donors_needed(photos: int) -> int:
    """Return the donors with which images keep four fifths of their worth: about a third as many as images."""
    low, high = 1, max(photos, 20)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if worth(photos, middle) >= WORTH else (middle, high)
    return high


def donors_of(counts: Counts) -> dict[str, int]:
    """Return condition → how many donors lent it backgrounds; conditions without donors are left out."""
    if "donor_id" not in counts.cells:
        return {}
    donors = counts.cells.groupby("condition", observed=True)["donor_id"].nunique()
    return {str(name): int(count) for name, count in donors.items() if count}


def donor_advice(photos: int, donors: int) -> str:
    """Return a sentence that asks for more donors; '' if there are enough, or none."""
    needed = donors_needed(photos)
    if not 0 < donors < needed:
        return ""
    return (
        f"{photos} images share {donors} backgrounds; with {needed} or more, intervals of pasted scenes would be "
        f"narrower by {1 - math.sqrt(worth(photos, donors) / worth(photos, needed)):.0%} or more"
    )


def photos_needed(
    difference: float = 0.02,
    *,
    discordant_share: float,
    power: float = 0.8,
    alpha: float = 0.05,
    donors: int = 0,
    donor_share: float = DONOR_SHARE,
) -> int:
    """Return the images that a paired comparison needs to find a difference of accuracies.

    n = (z₁₋α/₂ √ψ + z_power √(ψ − δ²))² / δ² (Miettinen 1968, Connett, Smith and McHugh 1987), δ the difference and ψ
    the share of images that one side answers rightly and the other wrongly; two-sided McNemar test. A difference δ
    takes at least δ discordant images, so ψ is raised to δ if less was observed.

    ``difference``: of accuracies, 0..1; its sign does not matter. ``discordant_share``: observed share of images that
    change from right to wrong or back, 0..1. ``donors``: backgrounds that the images share; 0 if they have their
    own. Raises UserError: no number of images finds it with so few donors.
    """
    own = _photos(abs(difference), discordant_share, power, alpha)
    if donors:
        own /= worth(1, donors, power=power, alpha=alpha) or 1e-9  # what few donors cost by themselves
        if own * donor_share >= donors:
            raise UserError(
                f"no number of images finds {100 * abs(difference):g} points with {donors} donors: take more than "
                f"{max(own * donor_share, 2):.0f} donors"
            )
        own = max(own, own * (1 - donor_share) / (1 - own * donor_share / donors) if own > donors else 0.0)
    return math.ceil(own - 1e-9)


def detectable(
    n: float,
    *,
    discordant_share: float,
    power: float = 0.8,
    alpha: float = 0.05,
    donors: int = 0,
    donor_share: float = DONOR_SHARE,
) -> float:
    """Return the smallest difference of accuracies that ``n`` images find with this power; 1 if none is found."""
    if n < 1:
        raise UserError("there must be an image at least to detect anything with")
    if donors:
        n *= worth(n, donors, donor_share=donor_share, power=power, alpha=alpha)
    if _photos(1.0, discordant_share, power, alpha) > n:
        return 1.0
    return float(
        scipy_optimize.brentq(
            lambda difference: _photos(difference, discordant_share, power, alpha) - n, 1e-9, 1.0, xtol=1e-12
        )
    )


def photos_to_settle(n: int, *, value: float, low: float, high: float, margin: float) -> float:
    """Return the images, in all, with which an interval like this one would lie on one side of a margin.

    The interval narrows with the root of the number of images, so n' = n (s (z₁₋α/₂ + z_power) / |value − margin|)²,
    s = (high − low) / 2 z₁₋α/₂. Unlike ``photos_needed`` it takes over whatever made the interval wide: images that
    share a background, classes of unlike sizes. Infinite if the estimate is the margin itself.
    """
    distance = abs(value - margin)
    if distance < 1e-9:
        return math.inf
    limit, reserve = _quantiles()
    error = (high - low) / (2 * limit)
    return float(math.ceil(n * (error * (limit + reserve) / distance) ** 2 - 1e-9))


def photo_range(n: int, *, value: float, low: float, high: float, margin: float) -> tuple[int, int] | None:
    """Return the fewest and the most images, in all, of ``photos_to_settle`` over the middle half of the estimate.

    The number hangs on the distance of the estimate from the margin, which is itself uncertain, so it is computed for
    both ends of the estimate's 50 % interval. None if these ends lie on both sides of the margin, or where the most
    is more than ten times the fewest: such a range advises no one.
    """
    limit, reserve = _quantiles()
    error = (high - low) / (2 * limit)
    return range_of(n, abs(value - margin) / error, limit + reserve) if error > 0 else None


def _quantiles(power: float = 0.8, alpha: float = 0.05) -> tuple[float, float]:
    """Return the normal quantiles z₁₋α/₂ and z_power."""
    return float(scipy_stats.norm.ppf(1 - alpha / 2)), float(scipy_stats.norm.ppf(power))


def range_of(n: int, statistic: float, wanted: float) -> tuple[int, int] | None:
    """Return n (wanted / z)² for z = statistic ± 0.67, the middle half of what it may be; None as ``photo_range``."""
    half = float(scipy_stats.norm.ppf(0.75))
    if statistic <= half:
        return None
    fewest, most = (math.ceil(n * (wanted / end) ** 2 - 1e-9) for end in (statistic + half, statistic - half))
    return (fewest, most) if most <= 10 * fewest else None


def sample_sizes(
    drops: pd.DataFrame,
    *,
    difference: float = 0.02,
    donors: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Return for each row of ``drops`` the images ``difference`` would need, and what its own number can detect.

    Columns: model, trained_on, condition, ``n``, ``donors``, ``discordant_share`` = (lost + gained) / n,
    ``photos_needed`` (on donors of their own) and ``detectable`` (a difference, 0..1). ``donors``: those of each
    condition (``donors_of``).
    """
    frame = drops[["model", "trained_on", "condition", "n"]].copy()
    frame["donors"] = [int((donors or {}).get(name, 0)) for name in frame["condition"]]
    frame["discordant_share"] = (drops["lost"] + drops["gained"]) / drops["n"]
    frame["photos_needed"] = [photos_needed(difference, discordant_share=share) for share in frame["discordant_share"]]
    frame["detectable"] = [
        detectable(int(n), discordant_share=share, donors=count)
        for n, share, count in zip(frame["n"], frame["discordant_share"], frame["donors"], strict=True)
    ]
    return frame


def _photos(difference: float, discordant_share: float, power: float, alpha: float) -> float:
    if not 0 < difference <= 1:
        raise UserError(f"a difference of accuracies must be above 0 and at most 1, not {difference}")
    if not 0 <= discordant_share <= 1:
        raise UserError(f"the share must be between 0 and 1, not {discordant_share}")
    if not (0 < alpha < 1 and alpha / 2 < power < 1):
        raise UserError("alpha must be between 0 and 1, and power between alpha / 2 and 1")
    share = max(discordant_share, difference)
    limit, reserve = _quantiles(power, alpha)
    under_null, under_truth = limit * math.sqrt(share), reserve * math.sqrt(max(share - difference**2, 0.0))
    return (under_null + under_truth) ** 2 / difference**2
