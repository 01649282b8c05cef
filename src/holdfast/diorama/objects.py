"""Painting of an object: from the scene's factors to colours and coverage."""

from __future__ import annotations

from typing import NamedTuple, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.diorama import textures
from holdfast.diorama.drawing import Grey, Plane, Points, Shape, turning
from holdfast.diorama.scene import Scene
from holdfast.diorama.shapes import build
from holdfast.diorama.textures import MATERIALS, Material
from holdfast.diorama.vocabulary import COLOURS

SHIFT = 4  # bits of a pixel's fraction in OpenCV's coordinates
_TONE, _ACCENT, _ID, _COVER = range(4)
_GROUND_UNDER_LIGHT, _GROUND_UNDER_DARK, _APART = 112.0, 138.0, 112.0
"""Brightness of an object below a light and below a dark texture, and their least distance (of 255)."""
_CONTOUR = np.ones((3, 3), np.uint8)


class Layer(NamedTuple):
    """A painted object within its box: ``colours`` are three float planes in 0..255, ``cover`` its alpha."""

    top: int
    left: int
    colours: tuple[Plane, Plane, Plane]
    cover: Grey
    from_above: bool


def fixed_point(points: Points, side: int) -> NDArray[np.int32]:
    """Return unit coordinates as OpenCV takes them: pixel centres are at whole numbers."""
    return np.rint((points * side - 0.5) * (1 << SHIFT)).astype(np.int32)


def paint_object(scene: Scene, side: int) -> Layer:
    """Draw a scene's object on a square of ``side`` pixels."""
    shape = build(scene.label, scene.template, scene.proportions, scene.articulation)
    canvas, (left, top), longer = _draw_parts(shape, scene, side)
    rng = generator("diorama object", scene.seed)
    tone, accent, ids, cover = (cast(Grey, channel) for channel in cv2.split(canvas))
    u, v = _object_frame(scene, side, longer, cover)
    pattern = textures.pattern(scene.texture, u, v, rng)
    material = MATERIALS[scene.material]
    grain = textures.grain(material, u, v, rng)
    shade, highlight = _shading(scene, material, ids, cover, grain, side)
    colours = _colours(scene, material, tone, accent, pattern, shade, highlight)
    return Layer(top, left, colours, cover, shape.from_above)


def _draw_parts(shape: Shape, scene: Scene, side: int) -> tuple[Grey, tuple[int, int], float]:
    """Return the object's box as four channels (tone, accent, part number and coverage), its corner, its longer side.

    The corner (left, top) is in pixels, the longer side a share of the image's.
    """
    outlines = [part.outline for part in shape.parts]
    points = np.concatenate(outlines)
    low, high = points.min(0), points.max(0)
    points = (points - (low + high) / 2) * (1 / float((high - low).max()))
    if scene.flip:
        points[:, 0] *= -1
    points = points @ turning(np.radians(scene.rotation)).T
    low, high = points.min(0), points.max(0)
    extent = high - low  # of the turned shape; slender ones are drawn longer, so that all fill the image alike
    longer, shorter = float(extent.max()), float(extent.min())
    size = extent * (min(scene.scale * (longer / shorter) ** 0.25, 0.97) / longer)
    middle = size / 2 + (1 - size) * (scene.x, scene.y)
    points = (points - (low + high) / 2) * (size[0] / extent[0]) + middle
    low, high = (middle - size / 2) * side, (middle + size / 2) * side
    left, top = np.maximum(low.astype(int) - 3, 0).tolist()
    right, bottom = np.minimum(high.astype(int) + 4, side).tolist()
    canvas = np.zeros((side, side, 4), np.uint8)
    canvas[..., _TONE] = 128
    fixed = fixed_point(points, side)
    start, number = 0, 40
    for part, outline in zip(shape.parts, outlines, strict=True):
        if part.seam:
            number = 40 + (number - 40 + 67) % 211
        stop = start + len(outline)
        tone = 0.5 + (part.tone - 0.5) * scene.markings
        colour = (tone * 255, part.accent * 255, number, 255)
        cv2.fillPoly(canvas, [fixed[start:stop]], colour, cv2.LINE_AA, SHIFT)
        start = stop
    return canvas[top:bottom, left:right], (left, top), float(size.max())


def _object_frame(scene: Scene, side: int, longer: float, cover: Grey) -> tuple[Plane, Plane]:
    """Return coordinates along and across the object for every pixel of its box, from its centre of mass."""
    stretch = 1 / (longer * scene.texture_scale * side)
    mass = cv2.moments(cover)
    x = (np.arange(cover.shape[1]) - mass["m10"] / mass["m00"]).astype(np.float32) * np.float32(stretch)
    y = (np.arange(cover.shape[0]) - mass["m01"] / mass["m00"]).astype(np.float32) * np.float32(stretch)
    angle = np.radians(scene.rotation)
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    flip = np.float32(-1 if scene.flip else 1)
    return np.add.outer(y * s, x * c) * flip, np.add.outer(y * c, x * -s)


def _shading(
    scene: Scene, material: Material, ids: Grey, cover: Grey, grain: Plane | None, side: int
) -> tuple[Plane, Plane | None]:
    """Return the factor on the colours, and the highlight that is added (0..1)."""
    seams = cv2.morphologyEx(ids, cv2.MORPH_GRADIENT, _CONTOUR)
    inside = cv2.bitwise_and(cv2.threshold(seams, 13, 255, cv2.THRESH_BINARY_INV)[1], cover)
    depth = cast(Plane, cv2.distanceTransform(cv2.threshold(inside, 127, 255, cv2.THRESH_BINARY)[1], cv2.DIST_L2, 3))
    scale = np.float32(1 / (0.055 * side))
    fall = np.maximum(np.float32(1) - depth * scale, 0)
    height = fall * fall
    np.subtract(np.float32(1), height, out=height)
    if grain is not None and material.relief:
        height += grain * np.float32(0.25 * material.relief)
    kernel = 2 * round(side / 128) + 1
    height = cast(Plane, cv2.blur(height, (kernel, kernel)))
    steep = material.puff * 0.055 * side / 8
    gx = cast(Plane, cv2.Sobel(height, cv2.CV_32F, 1, 0, ksize=3, scale=-steep))
    gy = cast(Plane, cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3, scale=-steep))
    angle = np.radians(scene.light_direction)
    lx, ly, lz = np.float32(0.7 * np.sin(angle)), np.float32(-0.7 * np.cos(angle)), np.float32(0.71)
    norm = gx * gx
    norm += gy * gy
    norm += np.float32(1)
    np.sqrt(norm, out=norm)
    lit = gx * lx
    lit += gy * ly
    lit += lz
    lit /= norm
    shade = lit * np.float32(material.diffuse)
    shade += np.float32(1.06 - material.diffuse * 0.66)
    if material.mirror:  # bands of sky, horizon and ground
        bands = np.sin(gy / norm * np.float32(5.5) + np.float32(0.7 * scene.articulation))
        shade += bands * np.float32(0.55 * material.mirror)
    if grain is not None and material.stain:
        shade += grain * np.float32(material.stain)
    if material.rim:
        shade += fall * np.float32(material.rim * 0.35)
    line = np.minimum(depth * np.float32(1 / (0.017 * side)), 1)
    line *= np.float32(material.line)
    line += np.float32(1 - material.line)
    shade *= line
    return shade, _highlight(material, gx, gy, norm, lx, ly) if material.gloss else None


def _highlight(material: Material, gx: Plane, gy: Plane, norm: Plane, lx: np.float32, ly: np.float32) -> Plane:
    """Return where the light is mirrored to the eye (half-way vector)."""
    half = np.float32(1 / np.sqrt(0.49 + 1.71**2))
    mirrored = gx * (lx * half)
    mirrored += gy * (ly * half)
    mirrored += np.float32(1.71) * half
    mirrored /= norm
    return cast(Plane, cv2.pow(np.maximum(mirrored, 0), float(material.shine * 3))) * np.float32(material.gloss)


def _colours(
    scene: Scene,
    material: Material,
    tone: Grey,
    accent: Grey,
    pattern: Plane | None,
    shade: Plane,
    highlight: Plane | None,
) -> tuple[Plane, Plane, Plane]:
    saturate = scene.material in ("plastic", "glass")
    first = textures.tinted(COLOURS[scene.colour], material, saturate=saturate)
    second = textures.tinted(COLOURS[scene.second_colour], material, saturate=saturate)
    third = first
    if pattern is not None:
        first, third = _ground_and_ink(first, second, light=scene.texture in textures.LIGHT_INK)
    level = tone.astype(np.float32) * np.float32(1 / 127.5)
    dark = np.minimum(level, 1)
    light = level - dark
    mix = accent.astype(np.float32) * np.float32(1 / 255) if accent.any() else None
    if pattern is not None:  # only if the object has its own colours: eyes and teeth stay
        pattern *= np.clip(np.float32(2.1) - np.abs(level - 1) * np.float32(1.9), 0, 1) * np.float32(0.94)
    dark *= np.float32(1) - light * np.float32(0.9)
    dark *= shade
    light *= np.clip(shade, 0.35, 1.15) * np.float32(236)
    if highlight is not None:
        light += highlight * np.float32(255)
    planes = []
    for channel in range(3):
        colour: Plane
        if mix is None:
            colour = np.full(tone.shape, first[channel], np.float32)
        else:
            colour = mix * np.float32(second[channel] - first[channel])
            colour += np.float32(first[channel])
        if pattern is not None:
            colour += pattern * (np.float32(third[channel]) - colour)
        colour *= dark
        colour += light
        planes.append(np.clip(colour, 0, 255, out=colour))
    return planes[0], planes[1], planes[2]


def _ground_and_ink(first: textures.Rgb, second: textures.Rgb, *, light: bool) -> tuple[textures.Rgb, textures.Rgb]:
    """Return the object's and the texture's colour, distinct in brightness at 64 px in any material."""
    mixed = 0.3 * np.array(first) + 0.7 * np.array(second)
    if light:
        ground = min(_brightness(first), _GROUND_UNDER_LIGHT)
        return _at(np.array(first), ground), _at(mixed, ground + _APART)
    ground = max(_brightness(first), _GROUND_UNDER_DARK)
    return _at(np.array(first), ground), _at(mixed, max(ground - _APART, 0.34 * ground))


def _brightness(colour: textures.Rgb | NDArray[np.float64]) -> float:
    return max(float(np.array([0.3, 0.59, 0.11]) @ np.asarray(colour)), 1.0)


def _at(colour: NDArray[np.float64], brightness: float) -> textures.Rgb:
    """Return the colour at a brightness; values out of range turn towards white."""
    scaled = colour * (brightness / _brightness(colour))
    over = max(float(scaled.max()) - 250, 0.0)
    if over:
        white = over / (float(scaled.max()) - brightness + 1e-9)
        scaled = scaled + (brightness - scaled) * min(white, 1.0)
    red, green, blue = np.clip(scaled, 0, 250).tolist()
    return red, green, blue
