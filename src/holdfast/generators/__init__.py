"""Image makers: text to image, inpainting, and latent generators that encode and decode."""

from holdfast.generators.loading import load_generator, load_image_maker

__all__ = ["load_generator", "load_image_maker"]
