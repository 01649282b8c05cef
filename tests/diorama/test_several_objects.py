"""Drawn scenes of several objects: exact masks and boxes, crowds, and the tie between background and class."""

import pickle

import numpy as np
import pytest

from holdfast.core.errors import SampleError, UserError
from holdfast.data import load_collection
from holdfast.diorama.render import render_several
from holdfast.diorama.scene import draw_several


def test_boxes_hold_exactly_the_visible_pixels_of_each_object():
    collection = load_collection("diorama:test?n=12&objects=0..5&size=96")
    assert len(collection.samples) + len(collection.empty) == 12
    seen = 0
    for sample in collection.samples:
        objects, union = sample.objects.load(96, 96), sample.mask.load(96, 96)
        masks = [each.mask.load(96, 96) for each in objects]
        assert np.array_equal(np.any(masks, axis=0), union)
        assert np.sum(masks, axis=0).max() == 1, "a pixel shows one object"
        for each, mask in zip(objects, masks, strict=True):
            if each.problem:
                continue
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert each.box == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
            assert each.area == mask.sum()
            seen += 1
    assert seen > 10


def test_a_scene_depends_on_its_seed_alone_and_survives_pickling():
    few, many = (load_collection(f"diorama:train?n={n}&objects=1..3&size=48") for n in (3, 5))
    assert [s.image.fingerprint() for s in few.samples] == [s.image.fingerprint() for s in many.samples[:3]]
    copy = pickle.loads(pickle.dumps(few.samples[1]))
    assert np.array_equal(copy.image.load(), few.samples[1].image.load())
    assert len({s.objects.fingerprint() for s in many.samples}) == 5


def test_the_tie_decides_how_often_objects_are_of_the_background_s_class():
    def agreeing(context):
        scenes = [draw_several(seed, context=context, count=4) for seed in range(40)]
        same = [member.label == scene.members[0].label for scene in scenes for member in scene.members[1:]]
        return np.mean(same)

    assert agreeing(0.0) < 0.3
    assert agreeing(0.95) > 0.8


def test_members_of_a_crowd_are_one_object():
    crowded = next(scene for scene in (draw_several(seed, count=3) for seed in range(200)) if len(scene.members) > 3)
    assert len(render_several(crowded, 64).masks) == 3


def test_what_is_asked_for_must_make_sense():
    for objects in ("5..1", "many", "1..99", "0"):
        with pytest.raises(UserError, match="objects"):
            load_collection(f"diorama:test?n=2&objects={objects}")
    with pytest.raises(SampleError):
        load_collection("diorama:test?n=1&objects=1&size=48").samples[0].objects.load(10, 10)
