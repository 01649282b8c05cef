"""Attribution maps: which parts of a picture an answer rests on."""

from holdfast.explain.measures import Look, look, rank_correlation, structural_similarity
from holdfast.explain.methods import METHODS, Method, gradcam, integrated_gradients, occlusion, parse_methods
from holdfast.explain.networks import Network, of_classifier, of_segmenter
from holdfast.explain.overlay import overlay
from holdfast.explain.randomise import DEPTHS, randomised, shuffled, stages

__all__ = [
    "DEPTHS",
    "METHODS",
    "Look",
    "Method",
    "Network",
    "gradcam",
    "integrated_gradients",
    "look",
    "occlusion",
    "of_classifier",
    "of_segmenter",
    "overlay",
    "parse_methods",
    "randomised",
    "rank_correlation",
    "shuffled",
    "stages",
    "structural_similarity",
]
