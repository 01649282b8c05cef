"""Load oracles by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import Name, parse_name, unknown
from holdfast.core.networks import HubError
from holdfast.core.protocols import Classifier, Oracle
from holdfast.core.types import ClassKeys, LabelSpace


class LabelMapping(Protocol):
    """Which outputs of a classifier mean which class; ``data.labels.LabelMap`` fulfils it."""

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The outputs of each class."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The name of each output in results."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of members and outputs."""


@dataclass(frozen=True)
class Resources:
    """Dependencies injected into oracle loaders, so that ``oracle`` need not import ``models`` or ``data``."""

    classes: tuple[str, ...]  # the dataset's, in its order
    load_classifier: Callable[..., Classifier]  # ``models.load_classifier``
    # ``data.labels.map_labels``
    map_labels: Callable[[Sequence[str], Mapping[str, ClassKeys], LabelSpace], LabelMapping]
    keys: Mapping[str, ClassKeys] = field(default_factory=dict)  # what the dataset knows about a class beyond its name
    device: str = "auto"  # where classifiers run


def load_oracle(
    text: str,
    *,
    classes: Sequence[str],
    load_classifier: Callable[..., Classifier],
    map_labels: Callable[[Sequence[str], Mapping[str, ClassKeys], LabelSpace], LabelMapping],
    keys: Mapping[str, ClassKeys] | None = None,
    device: str = "auto",
) -> Oracle:
    """Load an oracle by a name such as ``clip:ViT-B-32@openai``, ``classifier:packaged:mobilenet_v2?min_score=0.5``.

    Every scheme knows ``name=``, ``min_score=``, ``min_margin=`` and ``space=dataset|all``, and hands other options to
    the classifier. ``classes``: the dataset's, in its order; ``keys``: class → WordNet ids, indices and other names.
    """
    if not classes:
        raise UserError("an oracle needs the dataset's classes, and it has none")
    return load_member(text, Resources(tuple(classes), load_classifier, map_labels, dict(keys or {}), device))


WITHOUT_HUB = "classifier:packaged:efficientnet_lite0 (of photographs), clip:embedded (of drawn scenes)"


def load_member(text: str, resources: Resources) -> Oracle:
    """Load an oracle with given resources."""
    name = parse_name(text, tagged=False)
    if not name.scheme:
        schemes = ", ".join(f"{entry.name}:" for entry in registry.oracles.entries())
        raise UserError(f"an oracle is named scheme:name, which {text!r} is not; schemes: {schemes}")
    options = dict(name.options)
    options.pop("name", "")
    called = name.text("name")
    try:
        oracle = cast(Oracle, registry.oracles.get(name.scheme)(replace(name, tag="", options=options), resources))
    except HubError as error:
        raise HubError(f"{error}. An oracle that needs no hub: {WITHOUT_HUB}") from error
    if called:
        oracle.name = called
    return oracle


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """When an oracle accepts: least score and margin, and which answers compete."""

    min_score: float = 0.0  # 0..1
    min_margin: float = -1.0  # -1..1
    space: str = "dataset"  # ``dataset``: the classes compete; ``all``: every output of the oracle does

    def shown(self, name: str) -> str:
        """Return a name followed by the options that differ from the defaults."""
        plain = AcceptanceRule()
        parts = [
            f"{option}={getattr(self, option):g}" if option != "space" else f"space={self.space}"
            for option in RULE_OPTIONS
            if getattr(self, option) != getattr(plain, option)
        ]
        return name + ("&" if "?" in name else "?") * bool(parts) + "&".join(parts)


RULE_OPTIONS = ("min_score", "min_margin", "space")


def take_rule(name: Name) -> tuple[AcceptanceRule, dict[str, Any]]:
    """Return the checked rule of a name's options, and the options that are left."""
    rest = {option: value for option, value in name.options.items() if option not in RULE_OPTIONS}
    space = str(name.options.get("space", "dataset"))
    if space not in ("dataset", "all"):
        raise unknown("space of an oracle", space, ("dataset", "all"))
    return AcceptanceRule(_number(name, "min_score", 0.0), _number(name, "min_margin", -1.0), space), rest


def _number(name: Name, option: str, least: float) -> float:
    value = name.options.get(option, least)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
        raise UserError(f"{option} of {name.scheme}: is a number from {least:g} to 1, not {value}")
    return float(value)
