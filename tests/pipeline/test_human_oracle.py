"""People's votes where models judge otherwise: mining a pool, and FMR of real walks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from drawn_pool import SURROGATES, TARGET, make_pool

import holdfast
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.types import Sample
from holdfast.data import load_collection
from holdfast.pipeline.hard.mine import MineSpec, mine
from holdfast.pipeline.specs import PerturbSpec, WalkOptions
from holdfast.pipeline.walk.perturb import perturb
from made_votes import make_votes


def vote(samples: Iterable[Sample], accepted: set[str], folder: Path) -> Path:
    rows = [
        {
            "sample_id": sample.sample_id, "person": person, "label": sample.label, "asked": sample.label,
            "pixels_sha256": array_sha256(sample.image.load()),
            "answers": {"shows": "yes" if sample.sample_id in accepted else "no"},
        }
        for sample in samples
        for person in range(5)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    pq.write_table(make_votes(rows).to_arrow(), folder / "votes.parquet")
    return folder


def test_mining_with_people_as_the_oracle(tmp_path: Path) -> None:
    pool = make_pool(tmp_path / "pool", 72)
    samples = load_collection(str(pool)).samples
    judged, unseen = samples[:-10], samples[-10:]
    accepted = {sample.sample_id for number, sample in enumerate(judged) if number % 5}
    votes = vote(judged, accepted, tmp_path / "votes")
    spec = MineSpec(str(pool), SURROGATES, (TARGET,), f"human:{votes}", at_least=2, use=2, least_images=1, device="cpu")
    mined = mine(spec, tmp_path / "hard")
    assert mined.facts["unanswered"] == len(unseen)  # of these nothing is said, and nothing counts
    assert mined.facts["images"] == len(judged) and mined.facts["valid"] == len(accepted)
    assert any("people cannot have judged" in warning for warning in mined.warnings) and mined.facts["again"] == 0
    published = {sample.sample_id for sample in load_collection(str(tmp_path / "hard")).samples}
    assert published and published <= accepted
    assert "People of the campaign" in str(mined.facts["oracle_card"])


def test_votes_on_a_runs_images_correct_its_fmr(tmp_path: Path) -> None:
    spec = PerturbSpec(
        "diorama:test?n=12", models=("embedded:resnet_rho95",), generator="pixel:", oracle="clip:embedded",
        random_walk=False, walk=WalkOptions(steps=2, step_size=0.02), keep_images=True,
    )  # fmt: skip
    run, _ = perturb(spec, tmp_path / "run")
    samples = load_collection(str(tmp_path / "run" / "images")).samples
    ends = [row for row in run.rows().to_pylist() if row["condition"] == "perturbed" and row["status"] == "ok"]
    right = {row["image_sha256"] for row in ends if row["correct_restricted"]}
    assert len(samples) == len(ends) and 0 < len(right) < len(ends)
    wrong = [sample for sample in samples if array_sha256(sample.image.load()) not in right]
    accepted = {sample.sample_id for sample in samples} - {wrong[0].sample_id}
    votes = vote(samples, accepted, tmp_path / "votes")
    table = holdfast.open_run(tmp_path / "run").fmr_corrected(votes, resamples=100)
    pooled = table[table["label"] == ""].set_index("measure")
    assert pooled.loc["fmr", "judged"] == len(ends) and pooled.loc["fmr", "confirmed"] == len(ends) - 1
    assert pooled.loc["perturbed_accuracy", "estimate"] == pytest.approx(len(right) / (len(ends) - 1))
    assert pooled.loc["fmr", "estimate"] > pooled.loc["fmr", "by_oracle"]
    with pytest.raises(UserError, match="correct FMR by their votes"):
        perturb(replace(spec, oracle=f"human:{votes}"), tmp_path / "other")
