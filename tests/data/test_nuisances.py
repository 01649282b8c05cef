from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast.core.types import ClassKeys, LabelSpace
from holdfast.data.labels import map_labels
from holdfast.data.nuisances import (
    KINDS,
    PHOTO_TEMPLATES,
    Category,
    Nuisance,
    check_template,
    fill,
    read_categories,
    read_nuisances,
    read_templates,
    with_labels,
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def broden(folder: Path, counts: dict[str, int]) -> Path:
    """Files as the data set has them: a dense coding a category, and all labels with what they occur as."""
    labels, number = ["number,name,category,frequency,coverage,syns"], 0
    for category, count in counts.items():
        rows = ["code,number,name,frequency,coverage"]
        for code in range(1, count + 1):
            number += 1
            name = f"{category}_{code}" + ("-s" if category == "scene" else "-c" if category == "color" else "")
            rows.append(f"{code},{number},{name},{1000 - code},0.5")
            also = f"{category}(40);object(3)" if code % 2 else f"{category}(40)"
            labels.append(f"{number},{name},{also},43,0.5,a synonym;another")
        write(folder / f"c_{category}.csv", "\n".join(rows) + "\n")
    write(folder / "label.csv", "\n".join(labels) + "\n")
    write(folder / "category.csv", "name,first,last,count,frequency\n")
    return folder


def objectnet(folder: Path, count: int, several: int, *, first_line: int = 0) -> Path:
    """The four files of the ``mappings`` folder for ``count`` shared classes, ``several`` of them with two or three."""
    names = [f"thing {index}, synonym of {index}" for index in range(1000)]
    shared, output = {}, 0
    for number in range(count):
        aliases = 1 if number >= several else 2 + number % 2
        shared[f"Thing No. {number}"] = "; ".join(names[output : output + aliases])
        output += aliases
    order = [(7 * line + 3) % 1000 for line in range(1000)]  # line of the label file of each output
    lines = [""] * 1000
    for index, line in enumerate(order):
        lines[line] = names[index]
    everything = {label.lower().replace(" ", "_"): label for label in [*shared, "Air freshener"]}
    write(folder / "mappings" / "objectnet_to_imagenet_1k.json", json.dumps(shared))
    write(folder / "mappings" / "folder_to_objectnet_label.json", json.dumps(everything))
    write(folder / "mappings" / "imagenet_to_label_2012_v2", "\n".join(lines) + "\n")
    write(
        folder / "mappings" / "pytorch_to_imagenet_2012_id.json",
        json.dumps({str(index): line + first_line for index, line in enumerate(order)}),
    )
    return folder


def test_brodens_files_give_468_backgrounds_47_textures_and_32_materials(tmp_path: Path) -> None:
    folder = broden(tmp_path / "broden", {"color": 11, "scene": 468, "texture": 47, "material": 32})
    found = read_nuisances(folder)
    assert {kind: sum(one.kind == kind for one in found) for kind in KINDS} == {
        "background": 468,
        "texture": 47,
        "material": 32,
    }
    assert found[0] == Nuisance("background", "scene 1", "scene 1")
    for category in ("scene", "texture", "material"):
        (folder / f"c_{category}.csv").unlink()
    assert read_nuisances(folder) == found
    assert [one.kind for one in read_nuisances(broden(tmp_path / "b", {"texture": 3}) / "c_texture.csv")] == [
        "texture"
    ] * 3


@pytest.mark.parametrize("first_line", [0, 1])
def test_objectnets_mappings_give_113_categories_with_125_outputs(tmp_path: Path, first_line: int) -> None:
    folder = objectnet(tmp_path / "objectnet-1.0", 113, 8, first_line=first_line)
    found = read_categories(folder)
    assert len(found) == len({one.name for one in found}) == 113
    indices = [index for one in found for index in one.keys.imagenet_indices]
    assert sorted(indices) == list(range(8 * 2 + 4 + 105))
    assert found[1] == Category("thing no. 1", ClassKeys(imagenet_indices=(2, 3, 4)))
    assert read_categories(folder / "mappings" / "objectnet_to_imagenet_1k.json") == found
    # Without the files that number the outputs, their names find the same ones in a model.
    (folder / "mappings" / "pytorch_to_imagenet_2012_id.json").unlink()
    by_name = read_categories(folder)
    space = LabelSpace(tuple(f"thing {index}, synonym of {index}" for index in range(1000)))
    mapped = map_labels([one.name for one in by_name], {one.name: one.keys for one in by_name}, space)
    assert [list(own) for own in mapped.members] == [list(one.keys.imagenet_indices) for one in found]


def test_lists_of_our_own(tmp_path: Path) -> None:
    text = write(tmp_path / "c.txt", "# animals\nfox\n\n ice cream # cold\n")
    assert [one.name for one in read_categories(text)] == ["fox", "ice cream"]
    table = write(tmp_path / "c.csv", "class,imagenet_index,label\npen,418,\npen,563,\nchair,,rocking chair\n")
    assert read_categories(table) == [
        Category("pen", ClassKeys(imagenet_indices=(418, 563))),
        Category("chair", ClassKeys(labels=("rocking chair",))),
    ]
    sea = Nuisance("background", "sea", "in the sea")
    wool = Nuisance("material", "wool", "wool")
    for name, content in {
        "n.toml": 'material = ["wool"]\n[background]\nsea = "in the sea"\n',
        "n.csv": "kind,name,words\nmaterial,wool,\nbackground,sea,in the sea\n",
        "n.tsv": "kind\tname\twords\nmaterial\twool\t\nbackground\tsea\tin the sea\n",
    }.items():
        assert read_nuisances(write(tmp_path / name, content)) == [wool, sea]
    assert read_nuisances(write(tmp_path / "n.txt", "material: wool\n")) == [wool]


def test_a_label_file_must_know_every_category(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.csv", "class,imagenet_index\nfox,277\n")
    assert with_labels([Category("fox")], file)[0].keys.imagenet_indices == (277,)
    with pytest.raises(UserError, match=r"no label mapping for 'whale'.*labels\.csv"):
        with_labels([Category("fox"), Category("whale")], file)
    with pytest.raises(UserError, match="no label mapping for 'whale'"):
        read_categories(write(tmp_path / "c.csv", "class,imagenet_index\nfox,277\nwhale,\n"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("n.toml", "background = 3", "list of names"),
        ("n.toml", "background = [3]", "a text"),
        ("n.toml", "[background]\nsea = 3", "a text"),
        ("n.toml", "places = ['sea']", "not a kind of nuisance"),
        ("n.toml", "background = [", "not TOML"),
        ("n.toml", "", "is empty"),
        ("n.csv", "name\nsea\n", "columns kind and name"),
        ("n.csv", "kind,name\nbackground,\n", "not empty"),
        ("n.txt", "sea\n", "not a kind of nuisance"),
        ("n.txt", "", "is empty"),
    ],
)
def test_lists_that_cannot_be_used(tmp_path: Path, name: str, content: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_nuisances(write(tmp_path / name, content))


def test_folders_and_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither label\.csv nor all"):
        read_nuisances(tmp_path)
    with pytest.raises(UserError, match=r"has no objectnet_to_imagenet_1k\.json"):
        read_categories(tmp_path)
    with pytest.raises(UserError, match="there is no list of categories"):
        read_categories(tmp_path / "nowhere.txt")
    with pytest.raises(UserError, match="is empty"):
        read_categories(write(tmp_path / "c.txt", "\n"))
    with pytest.raises(UserError, match="cannot be read"):
        (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
        read_categories(tmp_path / "latin.txt")
    mappings = objectnet(tmp_path / "objectnet", 2, 0) / "mappings"
    shared = mappings / "objectnet_to_imagenet_1k.json"
    for content, said in {
        "[]": "not one of ObjectNet's",
        '{"Chair": 3}': "not one of ObjectNet's",
        "{": "not JSON",
        '{"Thing No. 0": ""}': "names no class",
        '{"Thing No. 0": "nothing"}': "not in imagenet_to_label_2012_v2",
        '{"Sofa": "thing 0, synonym of 0"}': "does not know",
    }.items():
        shared.write_text(content)
        with pytest.raises(UserError, match=said):
            read_categories(mappings)
    write(mappings / "pytorch_to_imagenet_2012_id.json", '{"0": 0, "1": 5000}')
    with pytest.raises(UserError, match="does not fit"):
        read_categories(mappings)


def test_templates(tmp_path: Path) -> None:
    file = write(tmp_path / "t.toml", 'background = "{category}, {nuisance} behind it"\n')
    assert read_templates(file) == {"background": "{category}, {nuisance} behind it"}
    for content, said in {
        'background = "a photo of a {category}"': "lacks its placeholder {nuisance}",
        'background = "a photo in a {nuisance}"': "lacks its placeholder {category}",
        'texture = "a {category} {nuisance} {colour}"': "has the placeholder {colour}",
        'texture = "a {category.__class__} {nuisance}"': "has the placeholder {category.__class__}",
        'texture = "a {category} {nuisance} {"': "a brace without its partner",
        'textures = "a {category} {nuisance}"': "did you mean texture",
        "texture = 3": "should be a text",
        "texture": "not TOML",
    }.items():
        with pytest.raises(UserError, match=re.escape(said)):
            read_templates(write(tmp_path / "t.toml", content))


@pytest.mark.parametrize(
    ("template", "category", "nuisance", "prompt"),
    [
        (PHOTO_TEMPLATES["background"], "umbrella", "airport", "a photo of an umbrella in an airport"),
        (PHOTO_TEMPLATES["background"], "fox", "kitchen", "a photo of a fox in a kitchen"),
        (PHOTO_TEMPLATES["texture"], "unicycle", "interlaced", "a photo of a unicycle with an interlaced texture"),
        ("An {nuisance} {category}", "fox", "wavy", "A wavy fox"),
        ("banana {category} a {nuisance}", "{nuisance}", "x", "banana {nuisance} a x"),
    ],
)
def test_a_prompt_reads_as_english(template: str, category: str, nuisance: str, prompt: str) -> None:
    assert fill(template, category, nuisance) == prompt


WORDS = st.text(st.characters(categories=["L", "Nd"], include_characters=" {}\\"), min_size=1)


@given(WORDS, WORDS)
def test_words_come_through_as_they_are(category: str, nuisance: str) -> None:
    template = "[{category}] and [{nuisance}]"
    check_template("background", template)
    assert fill(template, category, nuisance) == f"[{category}] and [{nuisance}]"
