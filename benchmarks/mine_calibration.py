"""How far the share that an oracle accepts is from the truth, on drawn pools with a known share of wrong images.

    python benchmarks/mine_calibration.py --images 600

Images are drawn from the prompts of ``holdfast generate --generator diorama:`` (class × nuisance); a planted share
shows another class than its prompt. Per share: what the oracle accepts of right and of wrong images, with 95 %
intervals (Wilson), and the accepted share as an estimate of the share of right ones.
"""

from __future__ import annotations

import argparse

from holdfast.data.labels import map_labels
from holdfast.diorama.painter import DrawnImageMaker
from holdfast.models import load_classifier
from holdfast.oracle import load_oracle
from holdfast.pipeline.generate.plan import GenerateSpec, plan_prompts
from holdfast.stats.core.cells import wilson


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--oracle", default="clip:embedded")
    parser.add_argument("--wrong", default="0,0.05,0.2")
    options = parser.parse_args()
    planned = plan_prompts(GenerateSpec(generator="diorama:")).requests[: options.images]
    classes = sorted({request.category for request in planned})
    oracle = load_oracle(options.oracle, classes=classes, load_classifier=load_classifier, map_labels=map_labels)
    for share in map(float, options.wrong.split(",")):
        maker = DrawnImageMaker(size=options.size, wrong=share)
        counts = {True: [0, 0], False: [0, 0]}
        for start in range(0, len(planned), 50):
            some = planned[start : start + 50]
            seeds = [request.seed(0) for request in some]
            images = maker.generate([request.prompt for request in some], seeds)
            verdicts = oracle.judge(images, [request.category for request in some])
            for seed, verdict in zip(seeds, verdicts, strict=True):
                right = maker.shows_prompt(seed)
                counts[right][0] += bool(verdict.accepted)
                counts[right][1] += 1
        accepted, total = counts[True][0] + counts[False][0], counts[True][1] + counts[False][1]
        print(f"planted {share:.0%}: right images {counts[True][1] / total:.1%}, accepted {accepted / total:.1%}")
        for right, (yes, n) in counts.items():
            low, high = wilson(yes, n) if n else (0.0, 1.0)
            kind = "right" if right else "wrong"
            print(f"  of {n} {kind} images {yes} accepted ({100 * low:.1f} to {100 * high:.1f} %)")


if __name__ == "__main__":
    main()
