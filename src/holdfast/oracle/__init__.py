"""Oracles decide whether an image still shows its class; loaders of classifiers are injected."""

from holdfast.oracle.lineage import card, kinship
from holdfast.oracle.loading import Resources, load_oracle

__all__ = ["Resources", "card", "kinship", "load_oracle"]
