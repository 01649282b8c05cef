"""How ``holdfast audit watch --photos`` answers in the drawn world, where the accuracy on new images is known.

python benchmarks/watch_drawn.py    # some minutes on one core; prints the table of packages/evidence/docs/dossier.md
"""

from __future__ import annotations

import sys

import numpy as np

from holdfast.core.types import DEFAULT_MAX_PIXELS, Sample
from holdfast.data import load_collection
from holdfast.data.images import ArrayImage
from holdfast.models import load_classifier
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.samples import render_conditions
from holdfast.scenarios import parse_conditions
from holdfast_evidence.dossier.profile import CONDITIONS, profile
from holdfast_evidence.dossier.watching import PhotoValues, placed

POOL, PHOTOS, CHECKS = 360, 120, 100
MODELS = {"embedded:resnet_rho0": "0", "embedded:resnet_rho95": "0.95"}
"""Model → how closely class and background go together in the images it is tested on."""
WORLDS = {
    "more of the same": "test", "backgrounds without ties": "test?context=0", "backgrounds never seen": "ood",
    "fog@1": "fog@1", "fog@3": "fog@3", "gaussian_noise@1": "gaussian_noise@1",
    "gaussian_noise@3": "gaussian_noise@3", "gaussian_blur@3": "gaussian_blur@3", "contrast@3": "contrast@3",
    "elastic_transform@2": "elastic_transform@2", "impulse_noise@1": "impulse_noise@1", "brightness@1": "brightness@1",
}  # fmt: skip


def scenes(world: str, context: str) -> list[Sample]:
    """Return new scenes: of another kind, or of the tested kind under a condition."""
    split = world.partition("?")[0] if world.startswith(("test", "ood")) else "test"
    tied = "0" if world.endswith("context=0") else context
    samples = list(load_collection(f"diorama:{split}?n={POOL}&seed=2&context={tied}").samples)
    if "@" not in world:
        return samples
    (condition,) = parse_conditions(world)
    pool = DonorPool([], max_pixels=DEFAULT_MAX_PIXELS)
    images = [
        next(iter(render_conditions(sample, [condition], pool, seed=0, max_pixels=DEFAULT_MAX_PIXELS))).rendered.image
        for sample in samples
    ]
    return [Sample(s.sample_id, s.label, ArrayImage(image)) for s, image in zip(samples, images, strict=True)]


def some(values: PhotoValues, rng: np.random.Generator) -> PhotoValues:
    """Return a random part of the images."""
    at = rng.choice(len(values.answer), PHOTOS, replace=False)
    return PhotoValues(values.features[at], values.answer[at], values.confidence[at], values.turned[at])


def main() -> int:
    rng, false = np.random.default_rng(0), []
    print("| model | new images | accuracy lost | within | cannot say | outside |\n|---|---|---|---|---|---|")
    for name, context in MODELS.items():
        samples = load_collection(f"diorama:test?n={POOL}&seed=1&context={context}").samples
        model = load_classifier(name, device="cpu", classes=sorted({sample.label for sample in samples}))
        conditions = parse_conditions(CONDITIONS)

        def seen(samples, model=model, conditions=conditions):  # type: ignore[no-untyped-def]
            values = profile(model, samples, conditions, max_pixels=DEFAULT_MAX_PIXELS).values
            right = [model.labels.names[at] == s.label for at, s in zip(values.answer, samples, strict=True)]
            return values, float(np.mean(right))

        tested, accuracy = seen(samples)
        for words, world in WORLDS.items():
            new, after = seen(scenes(world, context))
            answers = [placed(some(tested, rng), some(new, rng), number=1, seed=at)[0] for at in range(CHECKS)]
            shares = [answers.count(word) / CHECKS for word in ("within", "cannot say", "outside")]
            if accuracy - after >= 0.1:
                false.append(shares[0])
            cells = " | ".join(f"{share:.0%}" for share in shares)
            print(f"| {name} | {words} | {100 * (accuracy - after):+.1f} points | {cells} |", flush=True)
    print(f"\nfalse within where ten points or more were lost: at most {max(false):.1%}, mean {np.mean(false):.1%}")
    return int(max(false) > 0.05)


if __name__ == "__main__":
    sys.exit(main())
