"""``holdfast study adversarial-training``: does training against small changes help against large ones?

Plain and PGD-trained models are walked, and the images made against one are shown to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast import api
from holdfast.report.page.charts import dots
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import small_training, trained
from holdfast.studies.dynamic import COUNTS, columns, compared, family, images_of, in_points, scenes_of, walk_all
from holdfast.studies.study import Study, StudyOptions
from holdfast.training.robust import ADVERSARIAL_STEPS, RADIUS

if TYPE_CHECKING:
    import pandas as pd

WORDS = {"plain": "plain", "adversarial": "PGD-trained"}
ITSELF = "itself"
ATTACK = f"pgd?eps={RADIUS}&space=dataset"

SETTINGS = trained.settings()


def run(options: StudyOptions) -> StudyResult:
    """Train what is missing, walk, swap the images, and say what came out."""
    models = trained.models_of(options, small_training.STUDIES["adversarial-training"])
    results = walk_all(options, [{}], trained.all_of(models), keep_images=True)
    walks = images_of(results)
    groups = {WORDS[way]: found for way, found in trained.by_training(walks, models).items()}
    findings = [_both(groups, _attacked(options, models))]
    if walks["validated"].any():
        findings.append(_swapped(options, results, walks, models))
    return StudyResult(
        title="Adversarial training",
        question=(
            f"Does training against small changes (PGD, ℓ∞ {RADIUS:g}, {ADVERSARIAL_STEPS} steps) help against changes "
            "as large as the oracle allows? Small ResNets were trained plainly and adversarially on the same scenes "
            f"and walked, and the images made against one kind were shown to the other. {trained.INTERVALS}"
        ),
        findings=[*findings, trained.every_model(options, models)],
        facts=[(str(len(trained.all_of(models))), "models"), (str(options.settings["scenes"]), "test scenes")],
        note=trained.note(options),
        runs=["runs/walks", "runs/attack", "runs/swapped"],
    )


STUDY = Study(run, SETTINGS)


def _attacked(options: StudyOptions, models: Mapping[str, Mapping[str, str]]) -> dict[str, float]:
    """By way: accuracy under the attack that one kind was trained against, which shows whether that worked."""
    results = api.evaluate(
        scenes_of(options),
        models=trained.all_of(models),
        out=options.out / "runs" / "attack",
        scenarios=f"original,{ATTACK}",
        seed=options.seed,
        device=options.device,
        progress=options.progress,
    )
    rows = results.rows(["model", "kind", "correct"]).to_pandas()
    right = rows[rows["kind"].astype(str) == "attack"].groupby(rows["model"].astype(str))["correct"].mean()
    return {WORDS[way]: float(right.reindex(list(group)).mean()) for way, group in models.items()}


def _both(groups: dict[str, list[pd.DataFrame]], attacked: Mapping[str, float]) -> Finding:
    frame = trained.family_table(groups)
    frame["attacked"] = [attacked[way] for way in groups]
    plain, robust = groups.values()
    sentences = [
        f"Adversarial training changes FMR by {in_points(trained.difference(plain, robust, 'fmr'))}, the validated "
        f"share by {in_points(trained.difference(plain, robust, 'validation_rate'))} and accuracy on the scenes "
        f"themselves by {in_points(trained.difference(plain, robust, 'standard_accuracy'))}.",
        f"Under the attack it was trained against (PGD, 20 steps) it is right on {percent(attacked['PGD-trained'])} of "
        f"the scenes, the plain one on {percent(attacked['plain'])}.",
    ]
    columns = [
        Column("training", "Trained"), *trained.COLUMNS, *trained.COUNTS,
        Column("attacked", "Accuracy under PGD", "percent"),
    ]  # fmt: skip
    return Finding(
        "Walked against themselves",
        sentences,
        frame,
        columns,
        chart=lambda width: dots(
            compared(frame.assign(measure="FMR"), models="measure", row="training", measure="fmr"), width,
            models=["FMR"], rows=list(frame["training"]), title="FMR",
        ),
        caption="FMR of plain and PGD-trained models",
    )  # fmt: skip


def _swapped(
    options: StudyOptions, results: api.Results, walks: pd.DataFrame, models: Mapping[str, Mapping[str, str]]
) -> Finding:
    way_of = {name: WORDS[way] for way, group in models.items() for name in group}
    frame = family(_crossed(options, results, walks, trained.all_of(models), way_of), ["made_against", "tested_on"])
    sentences = []
    for made in WORDS.values():
        at = frame[frame["made_against"] == made].set_index("tested_on")["perturbed_accuracy"]
        other = next(word for word in WORDS.values() if word != made)
        sentences.append(
            f"Of images made against {made} models, {percent(at[ITSELF])} are recognised by the model they were made "
            f"against and {percent(at[other])} by {other} ones."
        )
    sentences.append(
        "SA is that of the tested models, VR the share of scenes that left an image. Intervals are over scenes, with "
        "the pairs of models of one row together."
    )
    shown = [Column("made_against", "Made against"), Column("tested_on", "Tested on")]
    shown += [*columns("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr"), *COUNTS]
    return Finding("Images swapped", sentences, frame, shown, caption="Images made against one kind, shown to others")


def _crossed(
    options: StudyOptions,
    results: api.Results,
    walks: pd.DataFrame,
    models: Sequence[str],
    way_of: Mapping[str, str],
) -> pd.DataFrame:
    """A row per scene × model it was changed against × model it was shown to, as ``stats.walks.fmr`` reads them."""
    shown = api.evaluate(
        f"manifest:{results.path / 'images' / 'manifest.parquet'}",
        models=models,
        out=options.out / "runs" / "swapped",
        scenarios="original",
        seed=options.seed,
        device=options.device,
        progress=options.progress,
    )
    made = _manifest(results)
    answers = shown.rows(["sample_id", "model", "correct"]).to_pandas().merge(made, on="sample_id")
    answers = answers.rename(columns={"model": "shown_to", "correct": "right_perturbed"})
    answers["shown_to"] = answers["shown_to"].astype(str)
    kept = walks[["model", "label", "source_id", "sample_id", "validated", "right_reconstruction", "right_random_walk"]]
    makers = kept.rename(columns={"model": "maker", "sample_id": "made_from"})
    tested = walks[["model", "sample_id", "right_original"]].rename(
        columns={"model": "shown_to", "sample_id": "made_from"}
    )
    crossed = makers.merge(tested, on="made_from")
    pairs = answers[["maker", "made_from", "shown_to", "right_perturbed"]]
    crossed = crossed.merge(pairs, on=["maker", "made_from", "shown_to"], how="left")
    ways = crossed["shown_to"].map(way_of), crossed["maker"].map(way_of)
    names = ways[0].where(ways[0] != ways[1], ways[0] + ", another training")
    return crossed.assign(made_against=ways[1], tested_on=names.where(crossed["shown_to"] != crossed["maker"], ITSELF))


def _manifest(results: api.Results) -> pd.DataFrame:
    import pandas as pd

    columns = ["sample_id", "made_from", "made_against"]
    made = pd.read_parquet(results.path / "images" / "manifest.parquet", columns=columns)
    return made.rename(columns={"made_against": "maker"})
