"""Attribution maps: which parts of an image an answer rests on."""

from holdfast.attribution.layers import (
    DEPTHS,
    ExplainedNetwork,
    of_classifier,
    of_segmenter,
    randomised,
    shuffled,
    stages,
)
from holdfast.attribution.measures import MapFocus, look, overlay, rank_correlation, structural_similarity
from holdfast.attribution.methods import (
    METHODS,
    AttributionMethod,
    gradcam,
    integrated_gradients,
    occlusion,
    parse_methods,
)

__all__ = [
    "DEPTHS", "METHODS", "AttributionMethod", "ExplainedNetwork", "MapFocus", "gradcam", "integrated_gradients", "look",
    "occlusion", "of_classifier", "of_segmenter", "overlay", "parse_methods", "randomised", "rank_correlation",
    "shuffled", "stages", "structural_similarity",
]  # fmt: skip
