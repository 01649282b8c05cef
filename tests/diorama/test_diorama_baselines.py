"""It is not a toy: with class and background independent, neither colours nor pixels give the class away."""

import numpy as np
import pytest

from holdfast.diorama import CLASSES, draw_scene, render

TRAIN, TEST = 3600, 960
AT_MOST_COLOUR, AT_MOST_PIXELS = 0.50, 0.40


def drawn(split, count, start):
    images = np.empty((count, 64, 64, 3), np.uint8)
    colours = np.empty((count, 512), np.float32)
    for index in range(count):
        label = CLASSES[index % 12]
        made = render(draw_scene(start + index, split=split, context=0.0, label=label))
        images[index] = made.image
        bins = (made.image[made.mask] // 32).astype(int) @ (64, 8, 1)
        colours[index] = np.sqrt(np.bincount(bins, minlength=512) / len(bins))  # Euclid is then Hellinger
    return images.reshape(count, -1), colours, np.arange(count) % 12


def nearest(train, test, neighbours):
    """For each test row, the class that most of its nearest training rows have."""
    squares = (train**2).sum(1)
    distances = squares - 2 * (test @ train.T)
    order = np.argpartition(distances, neighbours, axis=1)[:, :neighbours] % 12
    return np.stack([(order == label).sum(1) for label in range(12)], 1).argmax(1)


def least_squares(train, test):
    """Ridge regression on the twelve classes."""
    target = np.eye(12)[np.arange(len(train)) % 12] - 1 / 12
    mean = train.mean(0)
    gram = (train - mean).T @ (train - mean) + 2.0 * np.eye(train.shape[1])
    return ((test - mean) @ np.linalg.solve(gram, (train - mean).T @ target)).argmax(1)


@pytest.mark.slow
def test_colours_and_pixels_do_not_give_the_class_away():
    images, colours, _ = drawn("train", TRAIN, 1_000_000)
    test_images, test_colours, truth = drawn("test", TEST, 2_000_000)
    by_colour = max(
        (nearest(colours, test_colours, 1) == truth).mean(),
        (nearest(colours, test_colours, 15) == truth).mean(),
        (least_squares(colours, test_colours) == truth).mean(),
    )
    pixels, test_pixels = images.astype(np.float32) / 255, test_images.astype(np.float32) / 255
    by_pixels = max((nearest(pixels, test_pixels, k) == truth).mean() for k in (1, 5))
    print(f"foreground colours {by_colour:.3f}, nearest pixels {by_pixels:.3f}")
    assert 1 / 12 < by_colour <= AT_MOST_COLOUR
    assert by_pixels <= AT_MOST_PIXELS
