from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.schema import OUTCOME
from holdfast.core.types import ClassKeys, LabelSpace
from holdfast.data.labels import LabelMap, map_labels, outcomes, read_label_file

SHARED = Path(__file__).parents[2].parent / "shared"

XIMAGENET12 = {
    "lizard": ("n01689811", 44),
    "green lizard": ("n01693334", 46),
    "crayfish": ("n01985128", 124),
    "whale": ("n02066245", 147),
    "dog": ("n02085936", 153),
    "fox": ("n02119022", 277),
    "anemone fish": ("n02607072", 393),
    "airship": ("n02692877", 405),
    "car wheel": ("n02974003", 479),
    "cash machine": ("n02977058", 480),
    "cello": ("n02992211", 486),
    "ice cream": ("n07614500", 928),
}


@pytest.fixture(scope="module")
def imagenet() -> LabelSpace:
    from timm.data import ImageNetInfo

    info = ImageNetInfo("imagenet-1k")
    return LabelSpace(tuple(info.label_descriptions()), tuple(info.label_names()))


SMALL = LabelSpace(("tabby, tabby cat", "tiger cat", "Red_Fox, Vulpes", "crane", "crane, lift"))


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "labels.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_label_file_with_aliases(tmp_path: Path) -> None:
    header = "\ufeffclass,imagenet_index,wnid,label\n"
    text = header + 'cat,281,,\ncat,282,n02123159,\n dog , 153 ,,"Maltese dog, Maltese"\ncat,281,,\n'
    assert read_label_file(write(tmp_path, text)) == {
        "cat": ClassKeys(("n02123159",), (281, 282), ()),
        "dog": ClassKeys((), (153,), ("Maltese dog, Maltese",)),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no rows"),
        ("class,imagenet_index\n", "no rows"),
        ("name,imagenet_index\ncat,1\n", "columns class and one or more of"),
        ("class,index\ncat,1\n", "not class, index"),
        ("class\ncat\n", "columns class"),
        ("class,imagenet_index\ncat,1000\n", "line 2 .* '1000' is not an index"),
        ("class,imagenet_index\ndog,5\ncat,x\n", "line 3 .* 'x' is not an index"),
        ("class,wnid\ncat,02123045\n", "not a WordNet id"),
        ("class,wnid\n,n02123045\n", "line 2 .* has no class"),
        ("class,label\ncat,tabby, tabby cat\n", "more fields than the header"),
        ('class,label\ncat,"tabby\n', "cannot be read"),
    ],
)
def test_bad_label_files(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        read_label_file(write(tmp_path, text))


def test_unreadable_label_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_label_file(tmp_path / "nowhere.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(UserError, match="cannot be read"):
        read_label_file(tmp_path / "binary.csv")


def test_pets(imagenet: LabelSpace) -> None:
    file = SHARED / "photos" / "pets12" / "imagenet_index.csv"
    if not file.exists():
        pytest.skip("the pets12 images are not next to this checkout")
    keys = read_label_file(file)
    assert len(keys) == 12
    label_map = map_labels(sorted(keys), keys, imagenet)
    for name, own in zip(label_map.classes, label_map.members, strict=True):
        assert own == keys[name].imagenet_indices
        word = name.split("_")[0].lower()
        assert word in imagenet.names[own[0]].lower()


@pytest.mark.parametrize("by", ["wnid", "index", "both", "folder"])
def test_ximagenet12(by: str, imagenet: LabelSpace) -> None:
    classes = [wnid for wnid, _ in XIMAGENET12.values()] if by == "folder" else list(XIMAGENET12)
    keys = {
        name: ClassKeys((wnid,) if by in ("wnid", "both") else (), (index,) if by in ("index", "both") else ())
        for name, (wnid, index) in XIMAGENET12.items()
    }
    label_map = map_labels(classes, {} if by == "folder" else keys, imagenet)
    assert label_map.members == tuple((index,) for _, index in XIMAGENET12.values())


@pytest.mark.parametrize(
    "name", ["Saint_Bernard", "saint bernard", "St-Bernard", "Saint Bernard, St Bernard", "n02109525"]
)
def test_names_in_any_spelling(name: str, imagenet: LabelSpace) -> None:
    assert map_labels([name], {}, imagenet).members == ((247,),)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [("crane", 134, 517), ("maillot", 638, 639), ("missile", 657, 744), ("crayfish", 123, 124), ("Cardigan", 264, 474)],
)
def test_ambiguous_names_need_keys(name: str, first: int, second: int, imagenet: LabelSpace) -> None:
    with pytest.raises(UserError, match=rf"class '{name}' could be output {first} \(.*\) or {second} \("):
        map_labels([name], {}, imagenet)
    for index in (first, second):
        keys = {name: ClassKeys(imagenet_indices=(index,), labels=(name,))}
        assert map_labels([name], keys, imagenet).members == ((index,),)
    both = {name: ClassKeys(imagenet_indices=(first, second))}
    assert map_labels([name], both, imagenet).members == ((first, second),)
    with pytest.raises(UserError, match="label"):
        map_labels(["bird"], {"bird": ClassKeys(labels=(name,))}, imagenet)


def test_unmappable_class_names_the_nearest(imagenet: LabelSpace) -> None:
    with pytest.raises(UserError, match=r"'golden_retreiver' is no output of the model; nearest: golden retriever"):
        map_labels(["golden_retreiver"], {}, imagenet)
    near = r"for 'cat' tabby cat or tiger cat or Persian cat, for 'dog' .* dog or .* dog"
    with pytest.raises(UserError, match=near):
        map_labels(["cat", "dog"], {}, imagenet)
    with pytest.raises(UserError, match=r"'zzzzqqqq', 'yyyyxxxx' are .* 5 outputs are called tabby"):
        map_labels(["zzzzqqqq", "tiger cat", "yyyyxxxx"], {}, SMALL)


def test_keys_that_do_not_apply_leave_it_to_the_name() -> None:
    space = LabelSpace(("beagle", "pug"))
    keys = {"beagle": ClassKeys(("n02088364",), (162,), ()), "pug": ClassKeys(labels=("pug, pug-dog",))}
    assert map_labels(["pug", "beagle"], keys, space).members == ((1,), (0,))


def test_contradictions_are_errors(imagenet: LabelSpace) -> None:
    with pytest.raises(UserError, match="contradict each other: n02088364 is output"):
        map_labels(["beagle"], {"beagle": ClassKeys(("n02088364",), (161,))}, imagenet)
    with pytest.raises(UserError, match="lists 'n99999999', which is not an output"):
        map_labels(["beagle"], {"beagle": ClassKeys(("n02088364", "n99999999"))}, imagenet)
    with pytest.raises(UserError, match=r"'a' and 'b' both claim output 162 \(beagle\)"):
        map_labels(["a", "b"], {"a": ClassKeys(labels=("beagle",)), "b": ClassKeys(imagenet_indices=(162,))}, imagenet)


def test_indices_need_imagenets_outputs() -> None:
    numbered = LabelSpace(tuple(str(index) for index in range(1000)))
    keys = {"beagle": ClassKeys(imagenet_indices=(162,))}
    assert map_labels(["beagle"], keys, numbered).members == ((162,),)
    other = LabelSpace(tuple(f"thing {index}" for index in range(1000)))
    with pytest.raises(UserError, match="'beagle' is no output of the model"):
        map_labels(["beagle"], keys, other)


def test_map_knows_its_outputs() -> None:
    label_map = map_labels(
        ["crane", "fox"], {"crane": ClassKeys(labels=("crane, lift",)), "fox": ClassKeys(labels=("vulpes",))}, SMALL
    )
    assert label_map.members == ((4,), (2,))
    # Output 3 is called as the class is, but is not it: results must show the difference.
    assert label_map.outputs == ("tabby, tabby cat", "tiger cat", "fox", "crane [3]", "crane")
    again = map_labels(
        ["fox", "crane"], {"crane": ClassKeys(labels=("crane, lift",)), "fox": ClassKeys(labels=("vulpes",))}, SMALL
    )
    assert again.fingerprint != label_map.fingerprint


CATS = map_labels(
    ["cat", "fox"], {"cat": ClassKeys(labels=("tabby", "tiger cat")), "fox": ClassKeys(labels=("red fox",))}, SMALL
)


def one(row: list[float], label: str) -> dict:
    columns = outcomes(np.array([row], np.float32), CATS, [label])
    assert set(columns) <= set(OUTCOME.names)
    return {column: values[0] for column, values in columns.items()}


def test_outcome_of_an_alias() -> None:
    result = one([0.1, 0.4, 0.35, 0.1, 0.05], "cat")
    assert result["prediction"] == result["prediction_restricted"] == "cat"
    assert result["correct"] and result["correct_restricted"]
    assert result["confidence"] == pytest.approx(0.4)
    assert result["probability_of_label"] == pytest.approx(0.5)
    assert result["confidence_restricted"] == pytest.approx(0.5 / 0.85)
    assert result["topk"] == ["cat", "fox", "crane", "crane, lift"]
    assert (result["status"], result["error"]) == ("ok", None)


def test_outcome_outside_the_classes() -> None:
    result = one([0.1, 0.1, 0.15, 0.6, 0.05], "cat")
    assert (result["prediction"], result["correct"]) == ("crane", False)
    # The fox's one output beats each of the cat's two, though not their sum.
    assert (result["prediction_restricted"], result["correct_restricted"]) == ("fox", False)
    assert result["confidence_restricted"] == pytest.approx(0.15 / 0.35)


def test_no_answer_and_no_probabilities() -> None:
    silent = one([0, 0, 0, 0, 0], "cat")
    assert (silent["prediction"], silent["correct"], silent["confidence"], silent["topk"]) == (None, False, 0, [])
    assert (silent["prediction_restricted"], silent["correct_restricted"], silent["status"]) == (None, False, "ok")
    elsewhere = one([0, 0, 0, 1, 0], "cat")
    assert (elsewhere["prediction"], elsewhere["prediction_restricted"]) == ("crane", None)
    assert elsewhere["topk"] == ["crane"]
    for bad in (np.nan, np.inf, -0.5):
        broken = one([bad, 0.5, 0.5, 0, 0], "cat")
        assert broken["status"] == "error" and "not probabilities" in broken["error"]
        assert broken["prediction"] is None and broken["correct"] is None and broken["topk"] is None
        assert broken["label"] == "cat"


def test_one_bad_row_leaves_the_others_alone() -> None:
    rows = np.array([[0.1, 0.4, 0.35, 0.1, 0.05], [np.nan] * 5, [0, 0, 1, 0, 0]], np.float32)
    columns = outcomes(rows, CATS, ["cat", "cat", "fox"])
    assert columns["correct"] == [True, None, True]
    assert columns["status"] == ["ok", "error", "ok"]


def test_wrong_shapes_and_labels() -> None:
    with pytest.raises(UserError, match=r"shape \(2, 5\), expected \(1, 5\)"):
        outcomes(np.zeros((2, 5), np.float32), CATS, ["cat"])
    with pytest.raises(UserError, match="no class of the dataset is called 'cow'"):
        outcomes(np.zeros((1, 5), np.float32), CATS, ["cow"])
    assert all(values == [] for values in outcomes(np.zeros((0, 5), np.float32), CATS, []).values())


def by_hand(row: np.ndarray, label_map: LabelMap, label: str) -> dict:
    """The same definitions, one row and one step at a time."""
    classes = dict(zip(label_map.classes, label_map.members, strict=True))
    best = max(range(len(row)), key=lambda index: (row[index], -index))
    top: list[str] = []
    for index in sorted(range(len(row)), key=lambda index: (-row[index], index)):
        name = label_map.outputs[index]
        if row[index] > 0 and name not in top:
            top.append(name)
    restricted = max(
        classes, key=lambda name: (max(row[index] for index in classes[name]), -label_map.classes.index(name))
    )
    total = sum(row[index] for own in classes.values() for index in own)
    return {
        "prediction": label_map.outputs[best],
        "correct": best in classes[label],
        "prediction_restricted": restricted,
        "correct_restricted": restricted == label,
        "confidence": row[best],
        "confidence_restricted": sum(row[index] for index in classes[restricted]) / total,
        "probability_of_label": sum(row[index] for index in classes[label]),
        "topk": top[:5],
    }


@given(st.integers(0, 2**32 - 1), st.integers(5, 15), st.integers(1, 4), st.booleans())
def test_outcomes_match_a_plain_loop(seed: int, outputs: int, classes: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(outputs)
    cuts = np.sort(rng.choice(np.arange(1, outputs), classes, replace=False))
    names = [f"class {index}" for index in range(classes)]
    keys = {
        name: ClassKeys(labels=tuple(f"output {index}" for index in own))
        for name, own in zip(names, np.split(order, cuts)[:-1], strict=True)
    }
    label_map = map_labels(names, keys, LabelSpace(tuple(f"output {index}" for index in range(outputs))))
    rows = rng.dirichlet(np.full(outputs, 0.5), 6).astype(np.float32) + np.float32(1e-6)
    if ties:  # three of every four outputs share a place with others, the fifth place too
        rows = rng.integers(1, 4, (6, outputs)).astype(np.float32) / np.float32(64)
    labels = [str(label) for label in rng.choice(names, 6)]
    columns = outcomes(rows, label_map, labels)
    for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
        for column, value in by_hand(row.astype(np.float64), label_map, label).items():
            got = columns[column][index]
            assert got == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), column
