"""What a user writes after ``--method``: names with options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.names import parse_name, split_list
from holdfast.explain.baselines import BASELINES
from holdfast.explain.gradcam import gradcam
from holdfast.explain.integrated_gradients import integrated_gradients
from holdfast.explain.networks import Network
from holdfast.explain.occlusion import occlusion
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

METHODS: dict[str, tuple[Callable[..., Any], dict[str, type]]] = {
    "gradcam": (gradcam, {"layer": str}),
    "integrated_gradients": (integrated_gradients, {"steps": int, "baseline": str}),
    "occlusion": (occlusion, {"window": int, "stride": int, "baseline": str}),
}
"""Name → function and its options."""

GRADIENT_FREE = ("occlusion",)


@dataclass(frozen=True)
class Method:
    """A way to make maps, with its options settled; ``text`` is how it is written and recorded."""

    name: str
    text: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __call__(self, network: Network, batch: torch.Tensor, targets: Sequence[torch.Tensor]) -> torch.Tensor:
        """Maps, (n, height, width) ≥ 0 on the CPU."""
        maps: torch.Tensor = METHODS[self.name][0](network, batch, targets, **self.options)
        return maps

    def check(self, network: Network) -> None:
        """UserError where a model cannot be explained in this way: better now than in every row."""
        if self.name in GRADIENT_FREE:
            return
        if not network.differentiable:
            raise UserError(
                f"{self.name} follows gradients, and {network.name} has none; {' and '.join(GRADIENT_FREE)} needs only "
                "the model's answers"
            )
        if self.name == "gradcam" and network.module is None:
            raise UserError(f"gradcam watches a network's layers, and {network.name} shows none; try occlusion")


def parse_methods(text: str) -> list[Method]:
    """Read ``gradcam,integrated_gradients?steps=64,occlusion?window=16&stride=8``."""
    found = [_parse(part) for part in split_list(text)]
    if not found:
        raise UserError(f"no method is named; there are {', '.join(METHODS)}")
    return list(dict.fromkeys(found))


def _parse(text: str) -> Method:
    parsed = parse_name(text, tagged=False)
    if parsed.scheme or parsed.name not in METHODS:
        raise unknown("method", text.partition("?")[0], METHODS)
    kinds = METHODS[parsed.name][1]
    for key, value in parsed.options.items():
        if key not in kinds:
            raise unknown(f"option of {parsed.name}", key, kinds)
        if kinds[key] is int and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 4096):
            raise UserError(f"{parsed.name}?{key}= takes a whole number from 1 to 4096, not {value!r}")
    options = {key: str(value) if kinds[key] is str else value for key, value in sorted(parsed.options.items())}
    if options.get("baseline", BASELINES[0]) not in BASELINES:
        raise unknown("baseline", options["baseline"], BASELINES)
    settled = "&".join(f"{key}={value}" for key, value in options.items())
    return Method(parsed.name, parsed.name + (f"?{settled}" if settled else ""), options)
