"""How often ``data --ties`` finds a planted tie, and how often it sees one where there is none.

    python benchmarks/planted_ties.py [WORLDS [WORLDS_OF_PICTURES]]

Worlds are drawn scenes, 20 of each class, with ρ between class and background; another seed is another world. By
attributes: six facts of each scene (background, texture, material, colour, brightness, warmth), one of them planted. By
images: clusters of alike backgrounds, from the pixels alone.
"""

from __future__ import annotations

import sys

from holdfast.data import load_collection
from holdfast.pipeline.jobs.progress import silent
from holdfast.pipeline.metadata import BACKGROUND, attribute_columns, background_clusters
from holdfast.stats.core.cells import wilson
from holdfast.stats.regression.ties import ties

FACTORS = ("background", "texture", "material", "colour", "brightness", "warmth")


def tied(context: float, seed: int, *, look: bool) -> set[str]:
    """Return what goes with the label in one world."""
    photos = list(
        load_collection(f"diorama:train?n=240&size=32&context={context}&colour_context=0&seed={seed}").samples
    )
    columns = {key: values for key, values in attribute_columns(photos).items() if key in FACTORS}
    if look:
        columns = {BACKGROUND: background_clusters(photos, 12, 10**6, silent)}
    table = ties([photo.label for photo in photos], columns)
    return set(table[table["tied"]]["attribute"])


def measure(worlds: int, *, look: bool) -> None:
    """Print shares of worlds with their 95 % intervals."""
    for context in (0.0, 0.5) if look else (0.0, 0.3, 0.5, 0.7):
        answers = [tied(context, seed, look=look) for seed in range(worlds)]
        planted = BACKGROUND if look else "background"
        count = sum(planted in each if context else bool(each) for each in answers)
        low, high = (float(end) for end in wilson(count, worlds))
        what = f"{'pictures' if look else 'attributes'}, ρ {context}: {'found' if context else 'false alarm'}"
        print(f"{what} in {count} of {worlds} ({low:.1%} to {high:.1%})", flush=True)


def main(worlds: int = 200, pictured: int = 60) -> None:
    """Measure by attributes, then by images."""
    measure(worlds, look=False)
    measure(pictured, look=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
