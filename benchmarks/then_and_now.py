"""Hard images of two makers side by side: the picture of docs/hard-set.md.

``python benchmarks/then_and_now.py HARD64 HARD224 OUT.webp``: hard sets of the same prompts, as ``holdfast mine`` wrote
them; the first from ``embedded:`` (64 pixels), the second from ``diorama:`` (224). Takes prompts that are hard in both,
of different categories, kinds of nuisance in turn; where too few are in both, prompts of the first whose categories
and kinds the second has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from PIL import Image, ImageDraw, ImageFont

SIDE, GAP, LINE, ROWS = 224, 12, 26, 6


def pairs_of(then: pd.DataFrame, now: pd.DataFrame) -> list[tuple[pd.Series, pd.Series]]:
    """Return images of the same prompt, at most one of a category, kinds in turn."""
    both = then.merge(now, on="prompt", suffixes=("", "_now")).sort_values(["prompt", "image"])
    both["turn"] = both.groupby("kind").cumcount()
    chosen: list[tuple[pd.Series, pd.Series]] = []
    seen: set[str] = set()
    for row in both.sort_values(["turn", "kind"]).to_dict("records"):
        if row["category"] not in seen and len(chosen) < ROWS:
            seen.add(row["category"])
            match = now[now["image"] == row["image_now"]].iloc[0]
            chosen.append((then[then["image"] == row["image"]].iloc[0], match))
    return chosen


def main(first: Path, second: Path, out: Path) -> None:
    """Draw the sheet."""
    then, now = (pd.read_csv(folder / "manifest.csv") for folder in (first, second))
    pairs = pairs_of(then, now)
    print(f"{len(then)} and {len(now)} hard images, {len(set(then['prompt']) & set(now['prompt']))} prompts in both")
    columns = 3
    cell = (2 * SIDE + GAP, SIDE + LINE)
    rows = -(-len(pairs) // columns)
    sheet = Image.new("RGB", (columns * (cell[0] + 2 * GAP), rows * (cell[1] + GAP)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(17)
    for place, (old, new) in enumerate(pairs):
        x, y = place % columns * (cell[0] + 2 * GAP) + GAP, place // columns * (cell[1] + GAP) + GAP // 2
        draw.text((x, y), str(old["prompt"]), "black", font)
        for row, folder, left in ((old, first, x), (new, second, x + SIDE + GAP)):
            picture = Image.open(folder / row["image"]).convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
            sheet.paste(picture, (left, y + LINE))
    sheet.save(out, quality=88, method=6)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
