"""The renderer as an image maker: images show what their prompts say, and planted ones do not."""

import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.diorama import render
from holdfast.diorama.painter import DrawnImageMaker
from holdfast.diorama.vocabulary import BACKGROUNDS, CLASSES, MATERIALS, TEXTURES, caption
from holdfast.diorama.words import CHANGES
from holdfast.generators import load_image_maker


def test_every_combination_is_drawn_as_its_caption_says():
    maker = DrawnImageMaker()
    for number, label in enumerate(CLASSES):
        for texture in TEXTURES:
            material = list(MATERIALS)[(number + len(texture)) % len(MATERIALS)]
            background = list(BACKGROUNDS)[(7 * number + len(texture)) % len(BACKGROUNDS)]
            scene = maker.scene(caption(label, texture, material, background), number)
            assert (scene.label, scene.background) == (label, background)
            assert not TEXTURES[texture] or scene.texture == texture
            assert not MATERIALS[material] or scene.material == material


def test_pictures_depend_on_prompt_and_seed_alone():
    maker = load_image_maker("diorama:?size=96")
    prompts = ["a striped fox in the snow", "a green lizard made of wood"]
    both, alone = maker.generate(prompts, [3, 4]), maker.generate(prompts[1:], [4])
    assert both[0].shape == (96, 96, 3) and np.array_equal(both[1], alone[0])
    assert maker.masks(prompts, [3, 4])[0].any()
    assert np.array_equal(both[0], render(maker.scene(prompts[0], 3), 96).image)


def test_a_share_is_planted_wrong():
    maker = DrawnImageMaker(wrong=0.2)
    seeds = range(2000)
    wrong = [seed for seed in seeds if not maker.shows_prompt(seed)]
    assert abs(len(wrong) / len(seeds) - 0.2) < 0.03
    assert all(maker.scene("a dog on the grass", seed).label != "dog" for seed in wrong[:50])
    assert all(maker.scene("a dog", seed).label == "dog" for seed in seeds[:50] if seed not in wrong)


@pytest.mark.parametrize("phrase", CHANGES)
def test_size_light_pose_and_occlusion(phrase):
    scene = DrawnImageMaker().scene(f"a cello {phrase}", 1)
    assert all(getattr(scene, factor) == value for factor, value in CHANGES[phrase].items())
    assert render(scene, 64).mask.any()


def test_inpainting_keeps_the_object():
    rng = np.random.default_rng(0)
    image, mask = rng.integers(0, 256, (50, 70, 3), np.uint8), rng.random((50, 70)) < 0.3
    (painted,) = DrawnImageMaker(size=64).inpaint(["a fox in the snow"], [1], [image], [mask])
    assert np.array_equal(painted[mask], image[mask]) and not np.array_equal(painted[~mask], image[~mask])


@pytest.mark.parametrize("name", ["diorama:?size=3", "diorama:?wrong=2", "diorama:?colour=red", "diorama:?size=big"])
def test_bad_options_get_a_sentence(name):
    with pytest.raises(UserError):
        load_image_maker(name)


def test_a_prompt_without_a_class_names_the_classes():
    with pytest.raises(UserError, match="lizard"):
        DrawnImageMaker().generate(["a bicycle"], [0])
