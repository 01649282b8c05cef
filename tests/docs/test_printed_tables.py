"""The pages on published numbers name every network and scenario of the printed tables, and their arithmetic holds."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest

from holdfast.pipeline.segment import networks
from holdfast.pipeline.train import architectures
from holdfast.scenarios import parse_conditions

DOCS = Path(__file__).parents[2] / "docs"
HUB = (DOCS / "with-a-hub.md").read_text(encoding="utf8")
RESULTS = (DOCS / "results.md").read_text(encoding="utf8")


def printed(name: str) -> list[dict]:
    folder = resources.files(pytest.importorskip("holdfast_evidence.board")) / "printed"
    listed = json.loads((folder / f"{name}.json").read_text(encoding="utf8"))
    return listed if isinstance(listed, list) else listed["entries"]


@pytest.mark.parametrize("verb", ["train", "segment"])
def test_the_networks_and_scenarios_of_the_commands_exist(verb: str) -> None:
    command = next(text for text in re.findall(r"```bash\n(holdfast .*?)```", HUB, re.DOTALL) if f" {verb} xim" in text)
    named = re.search(r"--architectures '?([^\s']+)", command)[1].split(",")
    assert len(set(named)) == {"train": 10, "segment": 8}[verb]
    for name in named:
        if verb == "train":
            architectures.resolve(name, size=224, pretrained=False)
        else:
            networks.resolve(name, size=256, pretrained=True)
    conditions = {each.scenario for each in parse_conditions(re.search(r"--scenarios (\S+)", command)[1])}
    for entry in printed("ximagenet12"):
        assert conditions >= set(entry["protocol"]["settings"]["conditions"])


def test_the_eight_trainings_of_fmr_are_named() -> None:
    for way in ("sin", "ant", "ant+sin", "augmix", "deepaugment", "deepaugment+augmix", "dat"):
        assert f"torch:resnet50@{way}.pth" in HUB


def test_slips_are_what_arithmetic_says() -> None:
    dense, sparse, shared = (float(text.replace(",", "")) for text in re.search(
        r"([\d,.]+) s → ([\d,.]+) s saves ([\d.]+) %", RESULTS).groups())  # fmt: skip
    assert round(100 * (dense - sparse) / dense, 1) == shared == 22.2
    assert round(100 * (dense - sparse) / sparse, 1) == 28.5
    for difference, first, second in (("11.28", "89.92", "78.64"), ("27.95", "90.77", "62.82")):
        assert f"{first} − {second}" in RESULTS and round(float(first) - float(second), 2) == float(difference)
        values = {round(100 * score["estimate"], 2) for entry in printed("ximagenet12") for score in entry["scores"]}
        assert {float(first), float(second)} <= values
    for text in ("t-values", "no cell is a whole count"):
        assert text in RESULTS


def test_no_page_and_no_entry_says_that_the_paper_splits_80_to_20() -> None:
    texts = {file.name: file.read_text(encoding="utf8") for file in DOCS.rglob("*.md")}
    texts |= {entry["id"]: json.dumps(entry) for entry in printed("ximagenet12")}
    assert not [name for name, text in texts.items() if "80/20" in text]
