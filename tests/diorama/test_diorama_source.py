"""``diorama:…`` as a data source like any other."""

import pickle
from collections import Counter

import numpy as np
import pytest

from holdfast import registry
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.core.names import parse_name
from holdfast.diorama import CLASSES, source
from holdfast.diorama.render import render


def load(text, **given):
    return registry.data.get("diorama")(parse_name(text), **given)


def test_a_collection_is_balanced_and_knows_its_factors():
    collection = load("diorama:test?n=48&context=1&size=32")
    assert len(collection) == 48
    assert collection.classes == CLASSES
    assert set(Counter(sample.label for sample in collection.samples).values()) == {4}
    assert len({sample.sample_id for sample in collection.samples}) == 48
    assert collection.keys["fox"].wnids == ("n02119022",)
    assert collection.keys["fox"].imagenet_indices == (277,)
    for sample in collection.samples:
        assert sample.split == "test"
        assert sample.licence == "Apache-2.0"
        assert sample.attributes["label"] == sample.label
        assert sample.attributes["caption"].count(sample.label)
        canonical_json(sample.attributes)
    assert {s.attributes["background"] for s in collection.samples if s.label == "whale"} == {"sea"}


def test_images_and_masks_are_painted_on_demand_and_once(monkeypatch):
    sample = load("diorama:train?n=12&size=48").samples[5]
    painted = []
    monkeypatch.setattr(source, "_rendered", source.lru_cache(maxsize=16)(lambda *a: painted.append(a) or render(*a)))
    before = sample.image.fingerprint(), sample.mask.fingerprint()
    assert not painted, "a fingerprint needs no image"
    image, mask = sample.image.load(), sample.mask.load(48, 48)
    assert len(painted) == 1
    assert image.shape == (48, 48, 3)
    assert mask.shape == (48, 48)
    image[:], mask[:] = 0, False
    again = sample.image.load()
    assert again.any(), "a caller's changes stay the caller's"
    assert np.array_equal(again, render(sample.image.scene, 48).image)
    assert (sample.image.fingerprint(), sample.mask.fingerprint()) == before
    assert before[0] != before[1]


def test_sources_are_small_and_survive_pickling():
    sample = load("diorama:ood?n=12").samples[3]
    data = pickle.dumps(sample)
    assert len(data) < 3000
    copy = pickle.loads(data)
    assert copy == sample
    assert np.array_equal(copy.image.load(), sample.image.load())


def test_fingerprints_tell_scenes_apart():
    def prints(text):
        return [sample.image.fingerprint() for sample in load(text).samples]

    base = prints("diorama:test?n=24")
    assert len(set(base)) == 24
    assert prints("diorama:test?n=36")[:24] == base, "more scenes change none"
    assert not set(base) & set(prints("diorama:test?n=24&seed=1"))
    assert not set(base) & set(prints("diorama:test?n=24&size=96"))
    assert not set(base) & set(prints("diorama:train?n=24"))
    assert len(set(base) & set(prints("diorama:test?n=24&colour_context=0.32"))) > 0, "only what is tied changes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("diorama:tests", "did you mean test"),
        ("diorama:test?contxt=0.5", "did you mean context"),
        ("diorama:test?n=0", "whole number from 1"),
        ("diorama:test?n=many", "whole number"),
        ("diorama:test?size=5000", "whole number from 16 to 1024"),
        ("diorama:test?context=2", "number from 0 to 1"),
        ("diorama:test?texture_context=high", "number from 0 to 1"),
    ],
)
def test_mistakes_are_answered(text, message):
    with pytest.raises(UserError, match=message):
        load(text)


def test_a_mask_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="exact masks"):
        load("diorama:test?n=12", masks=tmp_path)


def test_limits_hold_for_one_sample():
    sample = load("diorama:test?n=12&size=64").samples[0]
    with pytest.raises(SampleError, match="more than the limit"):
        sample.image.load(max_pixels=100)
    with pytest.raises(SampleError, match="the mask is 64×64"):
        sample.mask.load(32, 32)
