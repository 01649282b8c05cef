"""Verdicts against plain NumPy, on score tables of any shape, and on the embedded models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.protocols import Oracle, TensorOracle
from holdfast.core.types import ClassKeys, LabelSpace
from holdfast.data.labels import map_labels
from holdfast.diorama.vocabulary import CLASSES
from holdfast.models import load_classifier
from holdfast.oracle import card, load_oracle
from holdfast.oracle.classifier import EMBEDDED
from holdfast.testing import check_oracle

NAMES = ("ant", "bee", "cat")
OUTPUTS = ("bee", "wasp", "cat", "tom", "ant")
KEYS = {"cat": ClassKeys(labels=("cat", "tom"))}
"""Two outputs mean cat; wasp is not a class."""


class Table:
    """A classifier whose answer to a 1 × 1 image is a row of a table: the row of its red value."""

    def __init__(self, logits: np.ndarray, name: str = "table", labels: Sequence[str] = OUTPUTS) -> None:
        self.table = torch.from_numpy(np.asarray(logits, np.float32))
        self.labels, self.name, self.fingerprint, self.device = LabelSpace(tuple(labels)), name, name, "cpu"

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        return self.table[(batch[:, 0, 0, 0] * 255).round().long()]

    def predict(self, images: Sequence[np.ndarray]) -> np.ndarray:
        rows = self.table[[int(image[0, 0, 0]) for image in images]] if len(images) else self.table[:0]
        return rows.softmax(1).numpy()


class Plain:
    """The same without gradients."""

    def __init__(self, table: Table) -> None:
        self.labels, self.name, self.fingerprint, self.predict = table.labels, table.name, table.name, table.predict


def oracle_of(text: str, **models: Table | Plain) -> Oracle:
    def load(name: str, **_: object) -> Table | Plain:
        return models[name]

    return load_oracle(text, classes=NAMES, load_classifier=load, map_labels=map_labels, keys=KEYS, device="cpu")


def pixels(count: int) -> list[np.ndarray]:
    return [np.full((1, 1, 3), value, np.uint8) for value in range(count)]


def batch_of(images: list[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255


tables = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).normal(0, 2, (9, len(OUTPUTS))))


def expected(logits: np.ndarray, label: str, space: str) -> tuple[str, float, float]:
    """What the rule says of one row, spelled out: what it sees, score and margin."""
    weights = {
        "ant": np.exp(logits[4]),
        "bee": np.exp(logits[0]),
        "cat": max(np.exp(logits[2]), np.exp(logits[3])),
    }
    if space == "all":
        weights["wasp"] = np.exp(logits[1])
    total = sum(weights.values())
    shares = {name: weight / total for name, weight in weights.items()}
    return (
        max(shares, key=lambda name: shares[name]),
        shares[label],
        shares[label] - max(share for name, share in shares.items() if name != label),
    )


@settings(max_examples=40, deadline=None)
@given(tables, st.sampled_from(["dataset", "all"]), st.floats(0, 1), st.floats(-1, 1), st.sampled_from(NAMES))
def test_verdicts_follow_the_rule_for_photos_and_for_tensors(
    logits: np.ndarray, space: str, least: float, lead: float, label: str
) -> None:
    logits = logits.astype(np.float32)
    name = f"classifier:t?space={space}&min_score={least:.4f}&min_margin={lead:.4f}"
    images = pixels(len(logits))
    for model in (Table(logits), Plain(Table(logits))):
        oracle = oracle_of(name, t=model)
        assert isinstance(oracle, TensorOracle) == isinstance(model, Table)
        given_verdicts = oracle.judge(images, [label] * len(images))
        for row, verdict in zip(logits.astype(np.float64), given_verdicts, strict=True):
            saw, score, margin = expected(row, label, space)
            assert verdict.saw == saw
            assert verdict.score == pytest.approx(score, abs=1e-5)
            assert verdict.margin == pytest.approx(margin, abs=1e-5)
            if min(abs(score - float(f"{least:.4f}")), abs(margin - float(f"{lead:.4f}"))) > 1e-5:
                wanted = saw == label and score >= float(f"{least:.4f}") and margin >= float(f"{lead:.4f}")
                assert verdict.accepted == wanted
            assert bool(verdict.reason) != verdict.accepted
        if isinstance(oracle, TensorOracle):
            place = torch.full((len(images),), NAMES.index(label))
            accepted, score_of, margin_of, saw_of = oracle.judge_batch(batch_of(images), place)
            assert accepted.tolist() == [verdict.accepted for verdict in given_verdicts]
            assert score_of.tolist() == [verdict.score for verdict in given_verdicts]
            assert margin_of.tolist() == [verdict.margin for verdict in given_verdicts]
            assert [oracle.answers[place] for place in saw_of] == [verdict.saw for verdict in given_verdicts]


@settings(max_examples=30, deadline=None)
@given(st.lists(tables, min_size=2, max_size=4), st.sampled_from(["majority", "unanimous"]), st.sampled_from(NAMES))
def test_an_ensemble_counts_votes(members: list[np.ndarray], rule: str, label: str) -> None:
    models = {f"m{number}": Table(logits, f"m{number}") for number, logits in enumerate(members)}
    text = "+".join(f"classifier:{name}" for name in models)
    oracle = oracle_of(f"ensemble:{text}?rule={rule}&space=all", **models)
    assert isinstance(oracle, TensorOracle)
    images = pixels(9)
    joined = oracle.judge(images, [label] * 9)
    alone = [oracle_of(f"classifier:{name}?space=all", **models).judge(images, [label] * 9) for name in models]
    for verdict, votes in zip(joined, zip(*alone, strict=True), strict=True):
        yes = sum(vote.accepted for vote in votes)
        assert verdict.accepted == (yes == len(votes) if rule == "unanimous" else 2 * yes > len(votes))
        assert verdict.score == pytest.approx(np.mean([vote.score for vote in votes]))
        assert verdict.saw == Counter(vote.saw for vote in votes).most_common(1)[0][0]
        if yes < len(votes):
            assert f"{yes} of {len(votes)}" in verdict.reason
            assert all(
                (f"{name}?space=all saw" in verdict.reason) != vote.accepted
                for name, vote in zip(models, votes, strict=True)
            )
        else:
            assert verdict.reason == ""
    accepted, score, margin, saw = oracle.judge_batch(batch_of(images), torch.full((9,), NAMES.index(label)))
    assert accepted.tolist() == [verdict.accepted for verdict in joined]
    assert score.tolist() == pytest.approx([verdict.score for verdict in joined], abs=1e-6)
    assert margin.tolist() == pytest.approx([verdict.margin for verdict in joined], abs=1e-6)
    assert [oracle.answers[place] for place in saw] == [verdict.saw for verdict in joined]


def test_an_ensemble_with_a_black_box_judges_photos_only() -> None:
    rng = np.random.default_rng(0)
    models = {"a": Table(rng.normal(size=(9, 5)), "a"), "b": Plain(Table(rng.normal(size=(9, 5)), "b"))}
    oracle = oracle_of("ensemble:classifier:a+classifier:b", **models)
    assert isinstance(oracle, Oracle) and not isinstance(oracle, TensorOracle)
    assert len(oracle.judge(pixels(9), ["ant"] * 9)) == 9


def test_what_is_no_number_is_not_accepted() -> None:
    for model in (Table(np.full((1, 5), np.nan)), Plain(Table(np.full((1, 5), np.nan)))):
        oracle = oracle_of("classifier:t", t=model)
        (verdict,) = oracle.judge(pixels(1), ["ant"])
        assert not verdict.accepted and verdict.reason == "no answer"


def test_thresholds_and_space_are_part_of_the_name_and_the_fingerprint() -> None:
    table = Table(np.zeros((9, 5)))
    texts = [
        "classifier:t",
        "classifier:t?min_score=0.5",
        "classifier:t?min_margin=0.1",
        "classifier:t?space=all",
    ]
    made = [oracle_of(text, t=table) for text in texts]
    assert len({oracle.fingerprint for oracle in made}) == len({oracle.name for oracle in made}) == 4
    assert made[1].name == "classifier:table?min_score=0.5"
    assert oracle_of("classifier:t?name=judge", t=table).name == "judge"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resnet", "scheme:name"),
        ("clp:embedded", "did you mean clip"),
        ("classifier:", "names a model"),
        ("classifier:t?min_score=2", "min_score of classifier: is a number from 0 to 1, not 2"),
        ("classifier:t?min_margin=low", "min_margin"),
        ("classifier:t?space=everything", "space of an oracle"),
        ("ensemble:classifier:t", "two members or more"),
        ("ensemble:classifier:t+classifier:t", "one member twice"),
        ("ensemble:classifier:t+classifier:u?rule=most", "rule of an ensemble"),
        ("clip:x?templates=a {}", "option of clip:"),
        ("classifier:few", "class 'bee'"),
    ],
)
def test_mistakes_are_one_sentence(text: str, words: str) -> None:
    models = {"t": Table(np.zeros((9, 5)), "t"), "u": Table(np.ones((9, 5)), "u")}
    models["few"] = Table(np.zeros((9, 3)), "few", ("ant", "cat", "tom"))
    with pytest.raises(UserError, match=words):
        oracle_of(text, **models)


def test_labels_that_are_no_class_are_refused() -> None:
    for text in ("classifier:t", "ensemble:classifier:t+classifier:u"):
        oracle = oracle_of(text, t=Table(np.zeros((9, 5)), "t"), u=Plain(Table(np.zeros((9, 5)), "u")))
        with pytest.raises(UserError, match="did you mean"):
            oracle.judge(pixels(1), ["antt"])


class Reader:
    """A zero-shot loader that records what it was asked to load and with which names."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, text: str, *, classes: tuple[str, ...], **_: object) -> Table:
        self.asked.append((text, classes))
        return Table(np.eye(len(classes)), text, classes)


def test_prompts_use_names_that_can_be_read() -> None:
    reader = Reader()
    keys = {"n02085936": ClassKeys(labels=("Maltese dog, Maltese",))}
    oracle = load_oracle(
        "clip:ViT-B-32@openai",
        classes=("n02085936", "ice_cream"),
        load_classifier=reader,
        map_labels=map_labels,
        keys=keys,
    )
    assert reader.asked == [
        ("clip:ViT-B-32@openai?template=an%20image%20of%20%7Bclass%7D", ("Maltese dog", "ice cream"))
    ]
    assert oracle.classes == ("n02085936", "ice_cream")
    assert [verdict.accepted for verdict in oracle.judge(pixels(2), oracle.classes)] == [True, True]
    for nameless in ("n02085936", "17"):
        with pytest.raises(UserError, match=f"no name for class '{nameless}'"):
            load_oracle("clip:x@y", classes=(nameless,), load_classifier=reader, map_labels=map_labels)


def test_the_template_is_an_option() -> None:
    reader = Reader()
    load_oracle("clip:x@y?template=my {}", classes=("a b",), load_classifier=reader, map_labels=map_labels)
    assert reader.asked[0][0] == "clip:x@y?template=my%20%7Bclass%7D"


def test_two_embedded_classifiers_as_oracles() -> None:
    classes = tuple(CLASSES)
    names = "classifier:embedded:mobilenet_rho95+classifier:embedded:resnet_rho0"
    oracle = load_oracle(
        f"ensemble:{names}", classes=classes, load_classifier=load_classifier, map_labels=map_labels, device="cpu"
    )
    check_oracle(oracle)
    check_oracle(oracle.members[0])
    shown = dict(card(oracle))
    assert "Diorama" in shown["Training data"] and "vote" in shown["What it is"]


@pytest.mark.skipif(not (EMBEDDED / "config.json").is_file(), reason="the embedded oracle is not in this installation")
def test_the_embedded_oracle_judges_and_knows_its_words() -> None:
    loaded = {"load_classifier": load_classifier, "map_labels": map_labels, "device": "cpu"}
    oracle = load_oracle("clip:embedded", classes=tuple(CLASSES), **loaded)
    check_oracle(oracle)
    assert "a {class}" in oracle.name
    with pytest.raises(UserError, match="no name for class 'zebra'"):
        load_oracle("clip:embedded", classes=("fox", "zebra"), **loaded)


def test_judging_a_batch_never_looks_at_its_values() -> None:
    """On tensors that have shapes and no values, whatever would wait for the device raises."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

    rng = np.random.default_rng(1)
    models = {name: Table(rng.normal(size=(9, 5)), name) for name in ("a", "b", "c")}
    oracle = oracle_of("ensemble:classifier:a+classifier:b+classifier:c?space=all&min_score=0.3", **models)
    assert isinstance(oracle, TensorOracle)
    batch, labels = batch_of(pixels(9)), torch.tensor([0, 1, 2] * 3)
    oracle.judge_batch(batch, labels)  # what is moved to a device once is moved now
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        columns = oracle.judge_batch(mode.from_tensor(batch), mode.from_tensor(labels))
        assert [tuple(column.shape) for column in columns] == [(9,)] * 4
        with pytest.raises(DataDependentOutputException):
            bool(columns[0].all())
