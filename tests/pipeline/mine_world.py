"""A pool whose truth is written in its pixels: the class, which models fail, and whether the label holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.data.writers import encode_image
from holdfast.pipeline.hard.mine import mine
from holdfast.pipeline.hard.pool import MineSpec

CLASSES = ("cat", "dog", "hen")
NUISANCES = {"background": ("sea", "sky", "wall"), "texture": ("dots", "rings"), "material": ("gold",)}
SURROGATES = ("one", "two", "three", "four")
TARGETS = ("five", "six")
NAMES = tuple(f"python:coded:{name}" for name in SURROGATES)
HELD_OUT = tuple(f"python:coded:{name}" for name in TARGETS)
ORACLE = "classifier:python:coded:judge"

SOURCE = '''
import time
import numpy as np

class Coded:
    """Reads the class and the bits of the models that fail from the first pixels of a picture."""

    labels = ("cat", "dog", "hen")

    def __init__(self, name, bit, pause=0.0):
        self.name, self.bit, self.pause = name, bit, pause
        self.fingerprint = f"coded {bit}"

    def predict(self, images):
        time.sleep(self.pause * len(images))
        scores = np.full((len(images), 3), 0.1, np.float32)
        for row, image in zip(scores, images):
            truth, fails = int(image[0, 0, 0]), int(image[0, 1, 0]) >> self.bit & 1
            row[(truth + fails) % 3] = 0.8
        return scores

one, two, three, four, five, six = (Coded(name, bit) for bit, name in enumerate("one two three four five six".split()))
slow = Coded("one", 0, pause=0.01)
judge = Coded("judge", 7)
always_wrong = Coded("always_wrong", 0)
always_wrong.predict = lambda images: np.roll(judge.predict(images), 1, axis=1)
always_wrong.fingerprint = "wrong"
copy = Coded("copy", 0)
'''


def write_models(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coded.py").write_text(SOURCE)
    return folder


def picture(label: str, bits: int, seed: int = 0) -> np.ndarray:
    image = np.random.default_rng([CLASSES.index(label), bits, seed]).integers(0, 256, (12, 14, 3), np.uint8)
    image[0, 0], image[0, 1] = CLASSES.index(label), bits
    return image


def hard_prompt(prompt: str) -> bool:
    """What is hard to everybody in this world."""
    return int(fingerprint(prompt), 16) % 3 == 0


def bits_of(prompt: str, seed: int) -> int:
    """Hard prompts fail every model with chance 0.8, others with chance 0.1; the label is wrong in one of ten."""
    rng = np.random.default_rng([int(fingerprint(prompt)[:8], 16), seed])
    fails = rng.random(6) < (0.8 if hard_prompt(prompt) else 0.1)
    return int(sum(1 << bit for bit in range(6) if fails[bit])) | (128 if rng.random() < 0.1 else 0)


def all_requests(repeats: int) -> list[tuple[str, str, str, str, int]]:
    return [
        (f"a {label} with {nuisance}, number {number}", label, kind, f"{nuisance}{number}", repeat)
        for label in CLASSES
        for kind, nuisances in NUISANCES.items()
        for nuisance in nuisances
        for number in range(2)
        for repeat in range(repeats)
    ]


def make_pool(
    folder: Path, *, repeats: int = 3, bits: Callable[[str, int], int] = bits_of, words: str = "", maker: str = "coded:"
) -> Path:
    """As ``holdfast generate`` writes it."""
    rows = []
    for prompt, label, kind, nuisance, repeat in all_requests(repeats):
        prompt += words
        prompt_id = fingerprint([prompt, label, kind, nuisance])[:16]
        data = encode_image(picture(label, bits(prompt, repeat), repeat))
        path = f"{kind}/{label}/{prompt_id}-{repeat}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        rows.append(
            {
                "path": path, "label": label, "sample_id": path.removesuffix(".png"), "source_id": prompt_id,
                "kind": "generated", "condition": kind, "nuisance": nuisance, "prompt": prompt, "prompt_id": prompt_id,
                "repeat": repeat, "seed": repeat, "generator": maker, "generator_fingerprint": "coded maker",
                "published_sha256": bytes_sha256(data), "licence": "CC0-1.0",
            }
        )  # fmt: skip
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "manifest.parquet")
    pacsv.write_csv(table, folder / "manifest.csv")
    (folder / "spec.json").write_text(json.dumps({"verb": "generate", "generator": maker}))
    return folder


class CodedMaker:
    """Paints the world's prompts: a real image maker, registered like any other package's."""

    name, fingerprint = "coded:", "coded maker"
    painted = 0

    def generate(self, prompts: list[str], seeds: list[int]) -> list[np.ndarray]:
        CodedMaker.painted += len(prompts)
        return [
            picture(next(one for one in CLASSES if f" {one} " in f" {prompt} "), bits_of(prompt, seed), seed)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]


def spec_of(pool: Path, **options: Any) -> MineSpec:
    options = {"again": 0, "least_images": 5, "device": "cpu"} | options
    return MineSpec(str(pool), NAMES, HELD_OUT, ORACLE, **options)


class HardSets:
    """Hard sets of one pool, each mined once for all tests; no one changes the pool or what ``mined`` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = make_pool(folder / "pool")
        self._mined: dict[str, Any] = {}

    def mined(self, **options: Any) -> Any:
        """What ``mine`` returns for these options, and left in its ``path``."""
        key = json.dumps(options, sort_keys=True)
        if key not in self._mined:
            self._mined[key] = mine(spec_of(self.pool, **options), self.folder / f"hard{len(self._mined)}")
        return self._mined[key]

    def copy(self, out: Path, **options: Any) -> Any:
        """A copy of the hard set in ``out``, as if it had been mined there."""
        mined = self.mined(**options)
        shutil.copytree(mined.path, out)
        return mined


@pytest.fixture(scope="module")
def hard_sets(tmp_path_factory: pytest.TempPathFactory) -> HardSets:
    return HardSets(tmp_path_factory.mktemp("hard-sets"))
