"""Hard images of two makers side by side: the picture of docs/hard-set.md.

``python benchmarks/then_and_now.py HARD64 HARD224 OUT.webp``: two hard sets of the same prompts, as ``holdfast mine``
wrote them, the first from ``embedded:`` (64 pixels), the second from ``diorama:`` (224). Shows prompts that are hard in
both: one a category, kinds of nuisance in turn, otherwise in the order of their names.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from PIL import Image, ImageDraw, ImageFont

SIDE, GAP, LINE, COLUMNS, MOST = 224, 12, 28, 2, 6


def main(first: Path, second: Path, out: Path) -> None:
    """Draw the sheet."""
    then, now = (
        pd.read_csv(folder / "manifest.csv").drop_duplicates("prompt")[["prompt", "label", "condition", "path"]]
        for folder in (first, second)
    )
    both = then.merge(now, on="prompt", suffixes=("", "_now")).sort_values("prompt").drop_duplicates("label")
    both["turn"] = both.groupby("condition").cumcount()
    print(f"{len(then)} and {len(now)} hard prompts, {len(set(then['prompt']) & set(now['prompt']))} in both")
    chosen = both.sort_values(["turn", "condition"]).head(MOST).to_dict("records")
    width, height = 2 * SIDE + 3 * GAP, SIDE + LINE + GAP
    sheet = Image.new("RGB", (COLUMNS * width, -(-len(chosen) // COLUMNS) * height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(18)
    for place, row in enumerate(chosen):
        x, y = place % COLUMNS * width + GAP, place // COLUMNS * height
        draw.text((x, y + 3), row["prompt"], "black", font)
        for file, left in ((first / row["path"], x), (second / row["path_now"], x + SIDE + GAP)):
            picture = Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
            sheet.paste(picture, (left, y + LINE))
    sheet.save(out, quality=88, method=6)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
