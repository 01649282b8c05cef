"""The verb ``coins``: draw the dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.core.options import Spec, option
from holdfast.core.verbs import Verb

SIZE, CELL, RADIUS, MOST = 96, 32, 9, 9


@dataclass(frozen=True)
class CoinsSpec(Spec):
    images: int = option(36, help="Number of images.", least=1)


def coins(spec: CoinsSpec, *, out: Path) -> Path:
    """Draw images of coins on a cloth, with masks and the number of coins."""
    from PIL import Image

    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    lines = ["path,label,mask"]
    out.mkdir(parents=True, exist_ok=True)
    for number in range(spec.images):
        count, mask = 1 + number % MOST, np.zeros((SIZE, SIZE), bool)
        for cell in rng.choice(MOST, count, replace=False):
            y, x = CELL * np.array(divmod(cell, SIZE // CELL)) + rng.integers(RADIUS + 2, CELL - RADIUS - 1, 2)
            mask |= (rows - y) ** 2 + (columns - x) ** 2 <= RADIUS**2
        image = rng.integers(40, 80, (SIZE, SIZE, 3), np.uint8)
        image[mask] = (220, 190, 110)
        Image.fromarray(image).save(out / f"{number}.png")
        Image.fromarray(mask).save(out / f"{number}-mask.png")
        lines.append(f"{number}.png,{count},{number}-mask.png")
    (out / "list.csv").write_text("\n".join(lines))
    return out / "list.csv"


COINS = Verb("coins", "Counting", coins, CoinsSpec, out="Folder of images, masks and list.csv.")
