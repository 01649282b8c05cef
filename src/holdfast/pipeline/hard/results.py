"""The tables of a mined set: everything that its page, its card and its user read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.protocols import Oracle
from holdfast.pipeline.hard.pool import MeasuredPool, MineSpec, model_facts
from holdfast.stats.hard.mining import CHOOSE, REPORT, accuracies, drops, rates, shared, validity
from holdfast.stats.hard.mining_curve import Curve, fit_curve, leave_one_out, subset_accuracies
from holdfast.stats.hard.mining_overlap import by_kin, intraclass, overlap, persistence
from holdfast.stats.hard.transfer import transfer_cases, transfer_predictors

SUBSETS = ("valid", "all")  # images that the oracle accepts, and all of them
FACTORS = ("kind", "nuisance", "category")

MATCHED = "hard with a control"
"""The hard images that a control was found for, if not all have one: the control is compared with these."""


@dataclass(frozen=True)
class MiningChoice:
    """How many surrogates, and how many of them must fail."""

    used: tuple[str, ...]  # the first k surrogates
    at_least: int  # m
    curve: pd.DataFrame  # on the choosing half, what k was chosen from: k, estimate, images
    fit: Curve | None  # the curve through it
    counts: pd.DataFrame  # on the choosing half, what m was chosen from: m, images, valid
    spec: MineSpec  # what was asked for: k, m, or the rule's numbers
    warnings: list[str]

    def words(self) -> str:
        """Return how many surrogates fail a hard image, in words: "all 4" or "3 or more of 4"."""
        k, m = len(self.used), self.at_least
        return f"all {k}" if m == k else f"{m} or more of {k}"

    def rule(self) -> list[str]:
        """Return the rule in words."""
        k, m, fall = len(self.used), self.at_least, self.spec.least_fall
        points = f"{100 * fall:g} point{'' if fall == 0.01 else 's'}"
        first = (
            f"k = {k} surrogates were asked for."
            if self.spec.use
            else f"k = {k}: the smallest number, 2 at least, after which one more surrogate would lower the fitted "
            f"curve by less than {points}; all of them if it still falls faster, or if "
            "they are too few for a curve. The curve is the accuracy of each surrogate on the sets that the others "
            "leave: no target was asked. It is at least m."
        )
        second = (
            f"m = {m} was asked for."
            if self.spec.at_least
            else f"m = {m}: the largest number of failing surrogates, 2 at least, that leaves {self.spec.least_images} "
            "valid images in the choosing half."
        )
        return [first, second]

    def record(self) -> dict[str, Any]:
        """Return the choice as JSON."""
        return {
            "k": len(self.used),
            "m": self.at_least,
            "k_given": bool(self.spec.use),
            "m_given": bool(self.spec.at_least),
            "least_images": self.spec.least_images,
            "least_fall": self.spec.least_fall,
            "words": self.words(),
            "rule": self.rule(),
        }


@dataclass(frozen=True)
class Selection:
    """The role of each image in the selection, as series by sample_id."""

    failures: pd.Series  # how many of the used surrogates get an image wrong
    shared: pd.Series  # those that at least m do
    hard: pd.Series  # those of them that are kept
    control: pd.DataFrame  # a row per hard image with a control (stats.hard.mining.matched_control)
    valid_control: pd.DataFrame  # the same among valid images only, for the valid hard ones

    def table(self, images: pd.DataFrame) -> pd.DataFrame:
        """Return ``selection.parquet``: one row per image of the pool."""
        control, valid_control = (
            dict(zip(pairs["control"].astype(str), pairs["hard"].astype(str), strict=True))
            for pairs in (self.control, self.valid_control)
        )
        rows = images[["prompt_id", "half", "valid"]].assign(
            surrogates_failed=self.failures,
            shared=self.shared,
            set=[
                "hard" if hard else "control" if image_id in control else "rest" for image_id, hard in self.hard.items()
            ],
            control_of=[control.get(str(image_id), "") for image_id in images.index],
            valid_control_of=[valid_control.get(str(image_id), "") for image_id in images.index],
        )
        return rows.rename_axis("sample_id").reset_index()


@dataclass(frozen=True)
class Mining:
    """What was measured, chosen and selected; ``again``: the hard prompts, painted again."""

    spec: MineSpec
    pool: MeasuredPool
    oracle: Oracle
    choice: MiningChoice
    selection: Selection
    again: MeasuredPool | None = None


def tables(mining: Mining) -> dict[str, pd.DataFrame]:
    """Return every table by name; they are about the reporting half unless a column ``half`` says else."""
    pool, choice, seed = mining.pool, mining.choice, mining.spec.seed
    facts = model_facts(pool.models, (*mining.spec.surrogates, *mining.spec.targets))
    frames = _accuracies(pool, mining.selection)
    frames |= {"validity": _validity(mining), "control": _controls(mining.selection)}
    frames |= _chosen(pool, choice) | _rates(pool, mining.selection)
    images = pool.images[(pool.images["half"] == REPORT) & pool.images["valid"]]
    failed = pool.failed.loc[images.index]
    frames |= _curves(images, failed, pool, seed)
    frames["leave_one_out"] = leave_one_out(images, failed, choice.used, pool.targets, choice.at_least)
    frames["overlap"] = overlap(images, failed, pool.models, seed=seed)
    frames["kin"] = by_kin(images, failed, pool.surrogates, pool.targets, facts, seed=seed)
    names = pool.models
    valid = pool.images[pool.images["valid"]]
    cases = transfer_cases(pool.failed.loc[valid.index, list(names)], valid["half"] == REPORT, facts["family"])
    frames["transfer"] = transfer_predictors(cases)
    frames["models"] = (
        facts.rename_axis("model")
        .reset_index()
        .assign(
            role=[_role(pool, model) for model in names],
            used=[model in choice.used for model in names],
            pool_accuracy=[float(1 - pool.failed[model].mean()) for model in names],
        )
    )
    frames["persistence"] = _persistence(mining)
    frames["luck"] = _luck(pool, mining.selection, seed)
    return frames


def _role(pool: MeasuredPool, model: str) -> str:
    return "target" if model in pool.targets else "surrogate"


def _accuracies(pool: MeasuredPool, selection: Selection) -> dict[str, pd.DataFrame]:
    images = pool.images
    measured, lost = [], []
    for half in (REPORT, CHOOSE):
        for subset in SUBSETS:
            inside = _inside(images, half, subset)
            pairs = selection.valid_control if subset == "valid" else selection.control
            sets = {
                "pool": inside,
                "control": inside & images.index.isin(pairs["control"]),
                "hard": inside & selection.hard,
            }
            matched = sets["hard"] & images.index.isin(pairs["hard"])
            alike = bool((matched == sets["hard"]).all())
            sets |= {} if alike else {MATCHED: matched}
            accuracy = accuracies(images, pool.failed, sets, pool.models)
            measured.append(accuracy.assign(half=half, subset=subset))
            against = [
                drops(accuracy, against=("pool",)),
                drops(accuracy, of="hard" if alike else MATCHED, against=("control",)),
            ]
            lost += [part.assign(half=half, subset=subset) for part in against]
    return {
        name: pd.concat(parts, ignore_index=True).assign(
            role=lambda frame: [_role(pool, model) for model in frame["model"]]
        )
        for name, parts in (("accuracy", measured), ("drops", lost))
    }


def _validity(mining: Mining) -> pd.DataFrame:
    """Return validity by set, and by how many of the used surrogates fail."""
    pool, selection = mining.pool, mining.selection
    inside = pool.images["half"] == REPORT
    groups = {
        "pool": inside,
        "control": inside & pool.images.index.isin(selection.control["control"]),
        "shared failures": inside & selection.shared,
    }
    groups |= {f"{count} fail": inside & (selection.failures == count) for count in range(len(mining.choice.used) + 1)}
    return validity(pool.images, groups)


def _controls(selection: Selection) -> pd.DataFrame:
    """Return how well the controls match: images by subset, nuisance and reason."""
    parts = [
        pairs.groupby(["why", "same_nuisance"]).size().rename("images").reset_index().assign(subset=subset)
        for subset, pairs in (("all", selection.control), ("valid", selection.valid_control))
    ]
    return pd.concat(parts, ignore_index=True)


def _chosen(pool: MeasuredPool, choice: MiningChoice) -> dict[str, pd.DataFrame]:
    """Return what k and m were chosen from, and what each m says about the targets in the reporting half."""
    curve = choice.curve.assign(fitted=choice.fit.at(choice.curve["k"]) if choice.fit else float("nan"))
    images = pool.images[(pool.images["half"] == REPORT) & pool.images["valid"]]
    failed = pool.failed.loc[images.index]
    parts = []
    for m in choice.counts["m"]:
        sets = {"hard": shared(failed, choice.used, m)}
        parts.append(accuracies(images, failed, sets, pool.targets).assign(m=m).drop(columns="set"))
    return {"choice_k": curve, "choice_m": choice.counts, "by_m": pd.concat(parts, ignore_index=True)}


def _rates(pool: MeasuredPool, selection: Selection) -> dict[str, pd.DataFrame]:
    """Return the share of shared failures among all images of a kind, nuisance, category."""
    frames = {}
    for factor in FACTORS:
        parts = []
        for half in (REPORT, "both"):
            for subset in SUBSETS:
                inside = _inside(pool.images, half, subset)
                images = pool.images[inside]
                if factor == "nuisance":
                    images = images.assign(nuisance=images["kind"] + ": " + images["nuisance"])
                rate = rates(images, selection.shared[inside], factor)
                rate = rate[~rate["value"].str.endswith(": ")]  # images that record no nuisance
                parts.append(rate.assign(half=half, subset=subset))
        frames[f"rates_{factor}"] = pd.concat(parts, ignore_index=True)
    return frames


def _curves(images: pd.DataFrame, failed: pd.DataFrame, pool: MeasuredPool, seed: int) -> dict[str, pd.DataFrame]:
    columns = ["target", "floor", "floor_low", "floor_high", "fall", "rate", "error"]
    subsets, summaries, fits = [], [], []
    for target in pool.targets:
        every, summary, draws = subset_accuracies(images, failed, pool.surrogates, target, seed=seed)
        fit = fit_curve(summary["k"], summary["estimate"], draws)
        summaries.append(summary.assign(fitted=fit.at(summary["k"]) if fit else float("nan")))
        subsets.append(every)
        if fit is not None:
            fits.append({"target": target} | {name: getattr(fit, name) for name in columns[1:]})
    return {
        "curve": pd.concat(summaries, ignore_index=True),
        "curve_subsets": pd.concat(subsets, ignore_index=True),
        "curve_fit": pd.DataFrame(fits, columns=columns),
    }


def _persistence(mining: Mining) -> pd.DataFrame:
    """Return which failures come back in new images of the hard prompts."""
    pool, choice, selection, again = mining.pool, mining.choice, mining.selection, mining.again
    columns = ["what", "half", "subset", "n", "prompts", "estimate", "low", "high", "pool", "mined"]
    columns += ["lasting", "lasting_low", "lasting_high"]
    if again is None:
        return pd.DataFrame(columns=columns)
    rows = []
    for half in (REPORT, "both"):
        for subset in SUBSETS:
            before, after = (_inside(measured.images, half, subset) for measured in (pool, again))
            hard = before & selection.hard
            painted = after & again.images["prompt_id"].isin(pool.images.loc[hard, "prompt_id"])
            fails = {"shared failure": (selection.shared, shared(again.failed, choice.used, choice.at_least))}
            fails |= {model: (pool.failed[model], again.failed[model]) for model in pool.targets}
            for what, (then, now) in fails.items():
                frames = [
                    pd.DataFrame({"prompt_id": frame.loc[mask, "prompt_id"], "failed": values[mask]})
                    for frame, mask, values in (
                        (pool.images, before, then),
                        (pool.images, hard, then),
                        (again.images, painted, now),
                    )
                ]
                rows.append(
                    {"what": what, "half": half, "subset": subset} | persistence(*frames, seed=mining.spec.seed)
                )
    return pd.DataFrame(rows, columns=columns)


def _inside(images: pd.DataFrame, half: str, subset: str) -> pd.Series:
    return (images["valid"] | (subset == "all")) & ((images["half"] == half) | (half == "both"))


def _luck(pool: MeasuredPool, selection: Selection, seed: int) -> pd.DataFrame:
    """Return how alike the images of one prompt are, in failing and in validity."""
    inside = pool.images["half"] == REPORT
    prompts = pool.images.loc[inside, "prompt_id"]
    values = {"shared failure": selection.shared, "accepted by the oracle": pool.images["valid"]}
    values |= {model: pool.failed[model] for model in pool.targets}
    return pd.DataFrame(
        [{"what": what} | intraclass(value[inside], prompts, seed=seed) for what, value in values.items()]
    )
