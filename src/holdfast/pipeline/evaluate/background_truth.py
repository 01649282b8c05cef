"""Compare the pasted background effect with the true one.

In a drawn scene the background can be painted again under the same object; pasting only imitates that. Both images
have rows in the one table, so that the pasted estimate can be compared with the truth, scene by scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import Name
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Collection, Sample
from holdfast.data.reading import attach_masks
from holdfast.diorama import Scene, source
from holdfast.pipeline.donors import SampleContext, make_pool
from holdfast.pipeline.evaluate.evaluate import EvaluateSpec, evaluate
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.drops import paired_effect
from holdfast.stats.effects.verdict import RANDOM, SAME

RERENDERED = "rerendered_background"  # the condition of a scene that was drawn on its donor's background
SCHEME = "diorama-rerendered"


def load(name: Name, *, masks: Path | None = None) -> Collection:
    """Draw ``diorama-rerendered:test?n=240&context=0.95&seed=0``: the options of ``diorama:``, every scene twice."""
    # Evaluate it with the same seed, or ``random_background`` pastes another donor's background than was painted.
    # ``masks`` replaces the exact masks of the scenes as drawn; scenes that were painted again need none.
    both = rerendered(source.load(name), seed=int(name.options.get("seed", 0)))
    if masks is None:
        return both
    drawn = [sample for sample in both.samples if sample.condition == ORIGINAL]
    return replace(both, samples=(*attach_masks(drawn, masks), *both.samples[len(drawn) :]))


def rerendered(collection: Collection, *, seed: int) -> Collection:
    """Return the drawn scenes and, for each, the same scene painted on the background of its donor."""
    # The donor is the one that ``random_background`` takes under this seed. Kind and seed of the background are the
    # donor's; object, light, clutter and noise stay, the shadow falls on the new ground and edges blend with it. The
    # second image has the condition ``rerendered_background`` and the first one's source.
    pool = make_pool(collection.samples, None, max_pixels=DEFAULT_MAX_PIXELS)
    by_id = {sample.sample_id: sample for sample in collection.samples}
    painted = []
    for sample in collection.samples:
        donor = SampleContext(sample, pool, seed).donor(same_class=False)
        painted.append(_painted_on(sample, by_id[donor.sample_id]))
    return replace(collection, samples=(*collection.samples, *painted))


def _painted_on(sample: Sample, donor: Sample) -> Sample:
    drawn, lent = (getattr(each.image, "scene", None) for each in (sample, donor))
    if not isinstance(sample.image, source.SceneImage) or not isinstance(drawn, Scene) or not isinstance(lent, Scene):
        raise UserError("only drawn scenes can be painted on another background; name them diorama:test")
    size = sample.image.size
    scene = replace(drawn, background=lent.background, background_seed=lent.background_seed)
    return replace(
        sample,
        sample_id=f"{sample.sample_id}/{RERENDERED}",
        source_id=sample.source_id,
        image=source.SceneImage(scene, size),
        mask=source.SceneMask(scene, size),
        condition=RERENDERED,
        attributes=scene.factors() | {"caption": scene.caption, "donor_id": donor.sample_id},
    )


def compare_pasted_with_true(
    models: Sequence[str],  # names of models
    *,
    n: int,  # how many scenes
    context: float,  # how strongly class and background go together in the scenes, 0..1
    seed: int,  # of the scenes and their donors
    out: Path,
    device: str = "cpu",  # where the models run
    progress: Progress = silent,
) -> pd.DataFrame:
    """Run models on test scenes with the donor's background pasted and painted; columns as of ``pasted_and_true``."""
    spec = EvaluateSpec(
        f"{SCHEME}:test?n={n}&context={context}&seed={seed}",
        models=tuple(models),
        scenarios=f"{ORIGINAL},{RANDOM},{SAME}",
        seed=seed,
        device=device,
    )
    run, _ = evaluate(spec, out, progress=progress)
    asked_for = pc.field("sample_id").isin(run.samples()["sample_id"].to_pylist())
    return pasted_and_true(reduce(run.predictions.dataset().to_table(filter=asked_for)))


def pasted_and_true(counts: Counts, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return how far the pasted background effect is from the true one, a row per model."""
    # Columns: ``n`` scenes with all four images; accuracies (macro) ``clean`` (original), ``pasted``
    # (random_background), ``true`` (rerendered_background); ``pasted_effect`` = clean − pasted; ``true_effect`` = clean
    # − true; ``bias`` = pasted_effect − true_effect with ``bias_low`` and ``bias_high`` (95 %, paired by scene, two-way
    # with the donors). The verdict's estimate, in which the pasting cancels: ``same_class`` (same_class_background),
    # ``corrected_effect`` = same_class − pasted, ``corrected_bias`` = corrected_effect − true_effect with ``…_low`` and
    # ``…_high``.
    rows = []
    for model, cells in counts.cells.groupby("model", observed=True):
        whole = cells.groupby("source_id", observed=True)["condition"].transform("nunique") == 4
        part = {name: cells[whole & (cells["condition"] == name)] for name in (ORIGINAL, RANDOM, RERENDERED, SAME)}
        biased = paired_effect(part[RERENDERED], part[RANDOM], "right", resamples=resamples, seed=seed)
        # Half the difference of two differences: a scene's share is the mean over its cells on either side.
        half = paired_effect(
            pd.concat([part[SAME], part[RERENDERED]]),
            pd.concat([part[RANDOM], part[ORIGINAL]]),
            "right",
            resamples=resamples,
            seed=seed,
        )
        clean = paired_effect(part[ORIGINAL], part[SAME], "right", resamples=1, seed=seed)
        row = {"model": str(model), "n": biased.n, "clean": clean.first, "pasted": biased.second, "true": biased.first}
        row |= {"pasted_effect": clean.first - biased.second, "true_effect": clean.first - biased.first}
        row |= {"bias": biased.value, "bias_low": biased.low, "bias_high": biased.high}
        row |= {"same_class": clean.second, "corrected_effect": clean.second - biased.second}
        row |= {"corrected_bias": 2 * half.value, "corrected_bias_low": 2 * half.low}
        rows.append(row | {"corrected_bias_high": 2 * half.high})
    return pd.DataFrame(rows)
