"""Models trained within a scenario beside the same networks trained on originals: what is lost for good?"""

from __future__ import annotations

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average, summary
from holdfast.stats.core.reduce import Counts, Outcome, right_column
from holdfast.stats.effects.drops import corrected_resampled_interval, paired_effect

COLUMNS = [
    "model", "condition", "n", "originals", "originals_low", "originals_high", "within", "within_low", "within_high",
    "gain", "low", "high", "method",
]  # fmt: skip


def within(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    trained_as: str = "{}",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracies of models trained on originals and of models trained on each condition, under it.

    ``gain`` = within − originals on the photos that both answered. Its interval is Nadeau and Bengio's over the folds'
    gains, because trainings differ as well as photos, but never narrower than the paired interval over photos, which a
    single split has alone; ``method`` says which. ``trained_as``: ``trained_on`` of the models held against those
    trained on originals, with {} for the condition: ``all but {}`` for models that saw every condition but this one.
    """
    column = right_column(outcome)
    cells = counts.cells.assign(
        **{name: counts.cells[name].astype(str) for name in ("model", "trained_on", "condition", "label")}
    )
    accuracies = summary(counts, outcome=outcome, average=average).to_dict("records")
    known = {(row["model"], row["trained_on"], row["condition"]): row for row in accuracies}
    rows = []
    for model, own in cells.groupby("model"):
        base = ORIGINAL if (own["trained_on"] == ORIGINAL).any() else ""
        for condition in counts.conditions:
            crossed = own[(own["trained_on"] == base) & (own["condition"] == condition)]
            inside = own[(own["trained_on"] == trained_as.format(condition)) & (own["condition"] == condition)]
            inside = inside if condition != ORIGINAL else crossed
            if crossed.empty and inside.empty:
                continue
            row: dict[str, object] = {"model": model, "condition": condition, "n": int(inside["n"].sum())}
            other = base if condition == ORIGINAL else trained_as.format(condition)
            for part, trained_on, tested in (("originals", base, crossed), ("within", other, inside)):
                if len(tested):
                    share = known[model, trained_on, condition]
                    row |= {part: share["accuracy"], f"{part}_low": share["low"], f"{part}_high": share["high"]}
            if condition != ORIGINAL and len(crossed) and len(inside):
                row |= _gain(inside, crossed, column, average, resamples, seed)
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _gain(
    inside: pd.DataFrame, crossed: pd.DataFrame, column: str, average: Average, resamples: int, seed: int
) -> dict[str, object]:
    effect = paired_effect(inside, crossed, column, average=average, resamples=resamples, seed=seed)
    if not effect.n:
        return {}
    folds = sorted(set(inside["fold"]) & set(crossed["fold"]))
    if len(folds) < 2:
        return {"gain": effect.value, "low": effect.low, "high": effect.high, "method": "one split, photos paired"}
    sides = [(inside[inside["fold"] == fold], crossed[crossed["fold"] == fold]) for fold in folds]
    gains = [paired_effect(*pair, column, average=average, resamples=2).value for pair in sides]
    low, high = corrected_resampled_interval(gains, test_share=1 / len(folds))
    # Few folds may agree by chance, and their interval may leave what a difference of shares can be.
    low, high = max(-1.0, min(low, effect.low)), min(1.0, max(high, effect.high))
    value = sum(gains) / len(gains)
    return {"gain": value, "low": low, "high": high, "method": f"{len(folds)} trainings, Nadeau–Bengio"}
