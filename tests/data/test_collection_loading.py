"""What a plain path is taken for, and what a mistyped one is answered."""

from __future__ import annotations

import json
import tarfile

import pytest

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.data import load_collection


@pytest.fixture
def seen(monkeypatch):
    """Which scheme was asked for which name, without reading anything."""
    calls = []
    monkeypatch.setattr(registry.data, "get", lambda scheme: lambda name, masks: calls.append((scheme, name, masks)))
    return calls


def test_plain_paths_are_recognised(tmp_path, seen):
    for name in ("a.json", "b.csv", "c.parquet", "d.tsv", "e.tar", "s-0.tar"):
        (tmp_path / name).touch()
        load_collection(str(tmp_path / name))
    load_collection(f"{tmp_path}/s-{{0..0}}.tar")
    assert [scheme for scheme, _, _ in seen] == ["coco", "manifest", "manifest", "manifest"] + ["webdataset"] * 3


@pytest.mark.parametrize(
    ("folders", "scheme"),
    [
        (["dog", "cat"], "folder"),
        (["images/dog", "masks/dog"], "folder"),
        (["image/n01689811", "masks/n01689811"], "folder"),
        (["image/n01689811", "standard_masks/n01689811"], "ximagenet12"),
        (["image/n01689811", "image_r/n01689811"], "ximagenet12"),
        (["image/dog", "image_r/dog"], "folder"),
        (["background/a", "texture/a", "material/a"], "imagenet-d"),
        (["background/a", "questions"], "imagenet-d"),
        (["background/a", "dog/a"], "folder"),
        (["background/a"], "folder"),
    ],
)
def test_folder_layouts_are_recognised_only_if_unmistakable(tmp_path, seen, folders, scheme):
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    load_collection(str(tmp_path))
    assert seen == [(scheme, Name(scheme, str(tmp_path)), None)]


def test_a_folder_of_shards_and_a_folder_that_synth_wrote(tmp_path, seen):
    (tmp_path / "shards").mkdir()
    tarfile.open(tmp_path / "shards/a.tar", "w").close()
    load_collection(str(tmp_path / "shards"))
    (tmp_path / "made/red").mkdir(parents=True)
    (tmp_path / "made/manifest.parquet").touch()
    load_collection(str(tmp_path / "made"))
    assert [(scheme, name.name) for scheme, name, _ in seen] == [
        ("webdataset", str(tmp_path / "shards")),
        ("manifest", str(tmp_path / "made/manifest.parquet")),
    ]


def test_paths_may_hold_our_punctuation(tmp_path, seen, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("my:photos", "what?n=1", "at@home", "{1..2}"):
        (tmp_path / name).mkdir()
        load_collection(name)
    assert [name.name for _, name, _ in seen] == ["my:photos", "what?n=1", "at@home", "{1..2}"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("folder:", "names no dataset; write folder:PATH"),
        ("foldr:x", "no data scheme is called 'foldr'; did you mean folder"),
        ("{tmp}/photo", "does not exist; did you mean .*photos"),
        ("{tmp}/nothing/photos", "does not exist; .* has photos$"),
        ("coco:{tmp}/x.json", "the COCO file .* does not exist"),
        ("manifest:{tmp}/x.csv", "the manifest .* does not exist"),
        ("webdataset:{tmp}/x-{{0..3}}.tar", r"the shard .*x-0\.tar' does not exist"),
        ("ximagenet12:{tmp}/photos", "not in the XIMAGENET-12 layout"),
        ("imagenet-d:{tmp}/photos", "not in the ImageNet-D layout"),
        ("{tmp}/readme.txt", "cannot be seen from its name; write SCHEME:"),
        ("folder:{tmp}/photos?lable=x", "no folder option is called 'lable'; did you mean label"),
        ("folder:{tmp}/photos?mask_format=rde", "no mask format is called 'rde'; did you mean red"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(tmp_path, text, sentence):
    (tmp_path / "photos").mkdir()
    (tmp_path / "readme.txt").touch()
    with pytest.raises(UserError, match=sentence) as caught:
        load_collection(text.format(tmp=tmp_path))
    assert "\n" not in str(caught.value)


def test_every_registered_scheme_has_a_reader():
    for scheme in ("folder", "coco", "manifest", "webdataset", "ximagenet12", "imagenet-d", "torchvision"):
        assert callable(registry.data.get(scheme))


def test_names_without_a_path_go_through_the_registry(tmp_path, write_image):
    write_image(tmp_path / "a.png")
    (tmp_path / "i.json").write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    with pytest.raises(UserError, match="no usable image"):
        load_collection(str(tmp_path / "i.json"))
