"""Lineage of a model, known from its name, warnings if models are related, and cards of oracles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.core.files import json_object
from holdfast.core.names import Name, parse_name
from holdfast.core.protocols import Oracle
from holdfast.core.votes import Votes

ASSETS = Path(__file__).parents[1] / "assets"

LARGEST_CONFIG = 1 << 20  # bytes
IMAGENET = "ImageNet-1k"
DRAWN = "drawn scenes of Diorama-12"

FAMILIES = (
    ("efficientnet_lite", r"efficientnet[-_]?lite"),
    ("efficientnet", r"efficientnet"),
    ("mobilenet", r"mobilenet"),
    ("convnext", r"convnext"),
    ("resnext", r"resnext"),
    ("densenet", r"densenet"),
    ("inception", r"inception|googlenet"),
    ("swin", r"swin"),
    ("deit", r"deit"),
    ("visformer", r"visformer"),
    ("twins", r"twins"),
    ("vit", r"(?<![a-z])vit|vision.?transformer|eva02|siglip"),
    ("resnet", r"resnet|(?<![a-z])rn\d+"),
    ("vgg", r"vgg"),
    ("alexnet", r"alexnet"),
    ("regnet", r"regnet"),
)
"""Family → how its architectures are spelled; the first that fits counts."""

TRAINING = (
    ("OpenAI's 400 million image–text pairs", r"openai|clip-vit"),
    ("LAION image–text pairs", r"laion"),
    ("DataComp image–text pairs", r"datacomp"),
    ("WebLI image–text pairs", r"webli|siglip"),
    ("ImageNet-22k", r"in22k|in21k|imagenet22k|imagenet21k"),
    (IMAGENET, r"in1k|imagenet1k"),
)
"""Data → how the tags of weights that were trained on it are spelled; several may fit."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Family and training data of one model."""

    model: str  # its name without options
    family: str  # of architectures, '' if the name does not say
    data: frozenset[str]  # what it was trained on, as far as that is known
    trained_with: tuple[str, ...] = ()  # generators whose images it was trained with, as far as its card says


def lineages(text: str) -> list[Lineage]:
    """Return the lineages behind a model or an oracle, of an ensemble's members or the model of ``classifier:``."""
    plain = text.partition("?")[0]
    if plain.startswith("ensemble:"):
        members = re.split(r"\+(?=[A-Za-z][\w-]+:)", plain.removeprefix("ensemble:"))
        return [lineage for member in members for lineage in lineages(member)]
    if plain.startswith("human:"):  # a folder's name says nothing about people
        return [Lineage(plain, "", frozenset())]
    plain = plain.removeprefix("classifier:")
    name = parse_name(plain)
    if name.scheme == "clip" and name.name == "embedded":
        return [Lineage(plain, "convnext", frozenset({DRAWN}))]
    config = _config(name)
    facts = config.get("holdfast")
    used = facts.get("trained_with", ()) if isinstance(facts, dict) else ()
    trained_with = (used,) if isinstance(used, str) else tuple(str(name) for name in used)
    # A checkpoint's file name says nothing reliable; its architecture is in its card or before the @.
    spelled = str(config.get("architecture", name.name)).lower()
    family = next((family for family, pattern in FAMILIES if re.search(pattern, spelled)), "")
    return [Lineage(plain, family, _data(name), trained_with)]


def _data(name: Name) -> frozenset[str]:
    if name.scheme == "embedded":
        return frozenset({DRAWN})
    if name.scheme == "packaged":
        return frozenset({IMAGENET})
    if name.scheme in ("torch", "local-dir", "onnx", "python"):
        return frozenset()  # the user's own weights: only the user knows
    tag = f"{name.name} {name.tag}".lower()
    known = {data for data, pattern in TRAINING if re.search(pattern, tag)}
    # If neither name nor tag says, timm and torchvision load weights that were trained, or last trained, on it.
    return frozenset(known or ({IMAGENET} if name.scheme in ("timm", "torchvision") else set()))


def _config(name: Name) -> dict[str, Any]:
    """Read the configuration of an embedded model, which cannot lead out of its folder, or of a folder; {} for none."""
    folder = ASSETS / "classifiers"
    if name.scheme == "embedded" and name.name in {path.name for path in folder.glob("*")}:
        file = folder / name.name / "config.json"
    elif name.scheme == "local-dir":
        file = Path(name.name) / "config.json"
    else:
        return {}
    if not file.is_file() or file.stat().st_size > LARGEST_CONFIG:
        return {}  # the code that loads the model says what is wrong with it
    return json_object(file)


@dataclass(frozen=True)
class Shared:
    """What a model and a judge of its oracle have in common."""

    judge: str  # name of the judge
    kind: Literal["weights", "family", "data"]
    name: str  # of the family or of the training data


def in_common(model_name: str, oracle_name: str) -> list[Shared]:
    """Return what a model and the judges of an oracle have in common."""
    (model,) = lineages(model_name)
    shared: list[Shared] = []
    for judge in lineages(oracle_name):
        if judge.model == model.model:
            shared.append(Shared(judge.model, "weights", judge.model))
            continue
        if model.family and judge.family == model.family:
            shared.append(Shared(judge.model, "family", model.family))
        shared += [Shared(judge.model, "data", data) for data in sorted(model.data & judge.data)]
    return shared


def kinship(
    model_name: str, oracle_name: str, generator_name: str = "", *, trained_with: Sequence[str] = ()
) -> list[str]:
    """Return warnings, a sentence each, if model under test, oracle and generator have something in common.

    Shared weights, architecture family and training data make an oracle blind where the model is: it rejects what
    the model gets wrong for the same reason, and FMR rises. A model that was trained with images of the generator
    has seen what it is tested on.
    """
    (model,) = lineages(model_name)
    warnings = []
    for shared in in_common(model_name, oracle_name):
        pair = f"{model.model} and its oracle {shared.judge}"
        warnings.append({
            "weights": f"{model.model} is judged by itself: it and the oracle are the same weights.",
            "family": f"{pair} are of one family, {shared.name}.",
            "data": f"{pair} were both trained on {shared.name}.",
        }[shared.kind])  # fmt: skip
    used = _plain(generator_name)
    if used and used in {_plain(name) for name in (*model.trained_with, *trained_with)}:
        warnings.append(f"{model.model} was trained with images of {used}, the generator that changes its test images.")
    return warnings


def _plain(name: str) -> str:
    return name.partition("?")[0]


UNKNOWN = "not known"

_CLIP = (
    "Reads text: a word written in the image can outweigh the object (typographic attacks).",
    "The wording of the prompt moves its scores; two templates are two oracles.",
    "Weak at counting, fine-grained kinds, and rare classes; backgrounds that usually go with a class raise its score.",
    "Trained on captions from the web, it associates people's looks, origin and gender with roles and judgements, and "
    "errs more often on people and places that are rare there (its model card); report --by shows VR by group.",
)
_EMBEDDED = (
    "A stand-in for a foundation model within the drawn world; says nothing about photographs.",
    "Knows the words of that world only.",
)
_IMAGENET = (
    "Relies on texture more than on shape, and on backgrounds that go with a class.",
    "Knows a thousand classes, many of them breeds: with space=dataset it must choose among the dataset's, whatever "
    "the image shows.",
)
_DRAWN = ("Trained on drawn scenes only; if its card says ρ > 0, it relies on the background that goes with a class.",)
_REMOTE = ("Its owner may change it behind the same name; then old answers, from the cache, and new ones do not fit.",)
_HUMAN = (
    "Knows only the images that people were shown, bit for bit, and nothing of any other.",
    "Who the people were, how they were paid and how long they looked decides as well; the export has every vote.",
)
_ANY = ("Its own mistakes become verdicts: what it never saw, it rejects.",)
_ENSEMBLE = ("Members that were trained on the same data err together, so a majority is less than it seems.",)


def card(oracle: Oracle) -> list[tuple[str, str]]:
    """Return the description of an oracle in a report: a heading and a text for each row of a table."""
    what, data, biases, space = _facts(oracle)
    return [
        ("Oracle", oracle.name), ("What it is", what), ("Training data", data), ("Known biases", " ".join(biases)),
        ("Label space", space), ("Fingerprint", oracle.fingerprint[:16]),
    ]  # fmt: skip


def _facts(oracle: Oracle) -> tuple[str, str, tuple[str, ...], str]:
    """Return what an oracle is, its training data, known biases, and who competes for the verdict."""
    votes, every = getattr(oracle, "votes", None), getattr(oracle, "every", 0)
    if members := getattr(oracle, "members", ()):
        facts = [_facts(member) for member in members]
        quorum = "all have" if getattr(oracle, "rule", "") == "unanimous" else "more than half have"
        data = "; ".join(f"{member.name}: {own[1]}" for member, own in zip(members, facts, strict=True))
        biases = tuple(dict.fromkeys([*_ENSEMBLE, *(bias for own in facts for bias in own[2])]))
        space = "; ".join(dict.fromkeys(own[3] for own in facts))
        return f"{len(members)} oracles that vote; {quorum} to accept.", data, biases, space
    if isinstance(votes, Votes) or every:
        what = f"People, who are asked about every {every}th step of a walk."
        if isinstance(votes, Votes):
            quorum = f"{votes.at_least} of {votes.of} have to accept ({votes.rule})"
            what = f"People of the campaign “{votes.campaign}”; {quorum}."
        return what, "none: people looked", _HUMAN, "each image was asked about one class"
    if oracle.name.startswith("http:"):
        what = "A model behind an address; its answers are kept, and only its owner knows its weights."
        return what, UNKNOWN, _REMOTE, "the server gets the dataset's classes"
    behind = lineages(getattr(getattr(oracle, "classifier", None), "name", oracle.name))[0]
    what, biases = _described(behind)
    everything = getattr(getattr(oracle, "rule", None), "space", "dataset") == "all"
    space = "all outputs of the oracle compete" if everything else "the dataset's classes compete"
    return what, ", ".join(sorted(behind.data)) or UNKNOWN, biases, space


def _described(behind: Lineage) -> tuple[str, tuple[str, ...]]:
    """Return what a model is, and its known biases."""
    family = f" of the {behind.family} family" if behind.family else ""
    if behind.model == "clip:embedded":
        what = f"A small image and text model{family} that Holdfast carries for its drawn world, asked zero-shot."
        return what, (*_EMBEDDED, *_ANY)
    if behind.model.startswith("clip:"):
        return f"An image and text model{family}, asked zero-shot with a prompt a class.", (*_CLIP, *_ANY)
    known = (*(_IMAGENET if IMAGENET in behind.data else ()), *(_DRAWN if DRAWN in behind.data else ()))
    return f"A classifier{family}, its outputs mapped to the dataset's classes.", (*known, *_ANY)
