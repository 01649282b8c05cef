"""Who decides whether an image still shows its class; classifiers come in by injection."""

from holdfast.oracle.cards import Card, card
from holdfast.oracle.kinship import kinship
from holdfast.oracle.loading import Resources, load_oracle

__all__ = ["Card", "Resources", "card", "kinship", "load_oracle"]
