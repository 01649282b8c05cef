"""Factors: how they are drawn, what each split may show, what a caption says."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import canonical_json
from holdfast.diorama import (
    BACKGROUNDS,
    CLASSES,
    MATERIALS,
    TEXTURES,
    UNSEEN_BACKGROUNDS,
    Contexts,
    Scene,
    draw_scene,
)
from holdfast.diorama.backgrounds import PAINTERS
from holdfast.diorama.scene import MAX_OCCLUDED
from holdfast.diorama.shapes import FAMILIES, templates
from holdfast.diorama.vocabulary import caption, home_background, home_material, home_texture, textures


def test_the_world_is_as_large_as_it_claims():
    assert len(CLASSES) == 12
    assert tuple(FAMILIES) == CLASSES
    assert len(BACKGROUNDS) >= 16
    assert len(TEXTURES) >= 10
    assert len(MATERIALS) >= 8
    assert set(PAINTERS) == set(BACKGROUNDS) | set(UNSEEN_BACKGROUNDS)
    homes = {home_background(label, "test") for label in CLASSES}
    assert len(homes) == 12, "no two classes share a home"
    assert homes <= set(BACKGROUNDS)
    for label in CLASSES:
        assert len(FAMILIES[label].templates) >= 5
        assert len(templates(label, held_out=True)) >= 2


def drawn(split: str, count: int, **given: object) -> list[Scene]:
    return [draw_scene(seed, split=split, **given) for seed in range(count)]


def test_test_scenes_show_templates_and_textures_that_training_never_does():
    train, test = drawn("train", 3000), drawn("test", 3000)
    for factor in ("texture", "template"):
        seen = {(scene.label, getattr(scene, factor)) for scene in train}
        new = {(scene.label, getattr(scene, factor)) for scene in test}
        assert not seen & new
    assert {scene.texture for scene in train} | {scene.texture for scene in test} == set(TEXTURES)
    every = {(label, template) for label in CLASSES for template in FAMILIES[label].templates}
    assert {(scene.label, scene.template) for scene in train + test} == every


def test_ood_scenes_are_set_where_no_other_scene_is():
    ood = drawn("ood", 600)
    assert {scene.background for scene in ood} == set(UNSEEN_BACKGROUNDS)
    assert not set(UNSEEN_BACKGROUNDS) & {scene.background for scene in drawn("train", 600) + drawn("test", 600)}


@pytest.mark.parametrize("split", ["train", "test", "ood"])
@pytest.mark.parametrize("context", [0.0, 0.5, 0.95, 1.0])
def test_a_class_is_at_home_as_often_as_the_formula_says(split, context):
    scenes = drawn(split, 2500, context=Contexts(context, context, context))
    for factor, kinds, home in (
        (
            "background",
            UNSEEN_BACKGROUNDS if split == "ood" else BACKGROUNDS,
            lambda label: home_background(label, split),
        ),
        ("texture", textures(split), lambda label: home_texture(label, split)),
        ("material", MATERIALS, home_material),
    ):
        expected = context + (1 - context) / len(kinds)
        share = np.mean([getattr(scene, factor) == home(scene.label) for scene in scenes])
        assert abs(share - expected) <= 4.5 * np.sqrt(expected * (1 - expected) / len(scenes))
        elsewhere = Counter(getattr(s, factor) for s in scenes if getattr(s, factor) != home(s.label))
        if context == 0:
            assert set(elsewhere) == set(kinds)
            assert max(elsewhere.values()) < 1.6 * min(elsewhere.values())


def test_context_changes_only_what_it_ties():
    for seed in range(50):
        loose, tied = draw_scene(seed), draw_scene(seed, context=1.0)
        assert tied.background == home_background(tied.label, "train")
        assert dataclasses.replace(loose, background=tied.background) == tied


def test_a_scene_is_its_seed():
    assert draw_scene(7) == draw_scene(7)
    assert draw_scene(7) != draw_scene(8)
    assert draw_scene(np.random.default_rng(3)) == draw_scene(np.random.default_rng(3))
    assert all(draw_scene(seed, label="cello").label == "cello" for seed in range(20))


def test_factors_are_json_and_within_bounds():
    for scene in drawn("train", 400):
        factors = json.loads(canonical_json(scene.factors()))
        assert Scene(**factors | {k: tuple(factors[k]) for k in ("proportions", "clutter")}) == scene
        assert 0 <= scene.occlusion <= MAX_OCCLUDED
        assert (scene.occluder == "none") == (scene.occlusion == 0)
        assert abs(scene.rotation) <= FAMILIES[scene.label].rotation
        assert scene.colour != scene.second_colour


def test_captions_use_the_fixed_vocabulary():
    assert caption("fox", "plain", "wood", "snow") == "a fox made of wood in the snow"
    assert caption("fox", "stripes", "natural", "snow") == "a striped fox in the snow"
    assert caption("airship", "plain", "natural", "night sky") == "an airship in the night sky"
    assert caption("ice cream", "dots", "gold", "moon") == "a dotted ice cream made of gold on the moon"
    phrases = [*BACKGROUNDS.values(), *UNSEEN_BACKGROUNDS.values(), *TEXTURES.values(), *MATERIALS.values()]
    assert len(set(phrases)) == len(phrases) - 1, "only natural and plain go unsaid"


def test_mistakes_are_answered():
    with pytest.raises(UserError, match="did you mean test"):
        draw_scene(0, split="tests")
    with pytest.raises(UserError, match="did you mean"):
        draw_scene(0, label="foxx")
    with pytest.raises(UserError, match="between 0 and 1"):
        draw_scene(0, context=1.5)
