"""Methods of attribution (Grad-CAM, integrated gradients, occlusion), and their names with options (``--method``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.attribution.layers import ExplainedNetwork, find_layer, grid_of, watched
from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import parse_name, split_list, unknown

PARTS = 7  # windows that fit next to each other across an image, if no size is given


def occlusion(
    network: ExplainedNetwork,
    batch: torch.Tensor,
    targets: Sequence[torch.Tensor],
    *,
    window: int = 0,
    stride: int = 0,
    baseline: str = "mean",
) -> torch.Tensor:
    """Return maps ≥ 0: the mean loss of score over windows that cover a pixel; 0: default ``window`` or ``stride``."""
    from captum.attr import Occlusion

    height, width = int(batch.shape[-2]), int(batch.shape[-1])
    window = window or max(1, min(height, width) // PARTS)
    stride = stride or max(1, window // 2)
    if window > min(height, width) or stride > window:
        raise UserError(
            f"occlusion takes a window of at most {min(height, width)} pixels here and a stride of at most the window, "
            f"not {window} and {stride}"
        )
    batch = batch.to(network.device)
    given = tuple(target.to(network.device) for target in targets)
    with torch.no_grad():
        attribution = Occlusion(network.score).attribute(
            batch,
            sliding_window_shapes=(batch.shape[1], window, window),
            strides=(batch.shape[1], stride, stride),
            baselines=make_baseline(batch, baseline),
            additional_forward_args=given,
            perturbations_per_eval=max(1, 64 // len(batch)),
        )
    # A window covers all channels at once, so every channel says the same.
    values: torch.Tensor = attribution[:, 0].detach().float().cpu().relu()
    return values


STEPS = 32


def integrated_gradients(
    network: ExplainedNetwork,
    batch: torch.Tensor,
    targets: Sequence[torch.Tensor],
    *,
    steps: int = STEPS,
    baseline: str = "mean",
) -> torch.Tensor:
    """Return maps, (n, height, width) ≥ 0 on the CPU: positive attribution, summed over channels."""
    return signed(network, batch, targets, steps=steps, baseline=baseline).sum(1).relu()


def signed(
    network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor], *, steps: int, baseline: str
) -> torch.Tensor:
    """Return the attribution of every value, NCHW on the CPU; an image's sum is score(image) − score(baseline)."""
    from captum.attr import IntegratedGradients

    if not network.differentiable:
        raise UserError(f"integrated gradients follow gradients, and {network.name} has none; try occlusion")
    batch = batch.to(network.device)
    given = tuple(target.to(network.device) for target in targets)
    attribution = IntegratedGradients(network.score, multiply_by_inputs=True).attribute(
        batch,
        baselines=make_baseline(batch, baseline),
        additional_forward_args=given,
        n_steps=steps,
        internal_batch_size=max(len(batch), 16),
    )
    values: torch.Tensor = attribution.detach().float().cpu()
    return values


def gradcam(
    network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor], *, layer: str = ""
) -> torch.Tensor:
    """Return maps, (n, height, width) ≥ 0 on the CPU: channels of a layer, weighted by the mean gradient of the score.

    Written here rather than taken from captum because tokens and channels-last layers have to become a grid first;
    on a plain convolutional network the two agree to rounding. An empty ``layer`` is found (``layers.find_layer``).
    """
    batch = batch.to(network.device)
    targets = [target.to(network.device) for target in targets]
    name = layer or find_layer(network, batch[:1], [target[:1] for target in targets])
    size = (int(batch.shape[-2]), int(batch.shape[-1]))
    with watched(network, name) as outputs, torch.enable_grad():
        score = network.score(batch.detach().requires_grad_(), *targets)
    assert network.module is not None
    grids = [(output, grid) for _, output in outputs if (grid := grid_of(output, size, network.module)) is not None]
    if not grids:
        raise UserError(f"the layer {name} of {network.name} has no grid of places; name another: gradcam?layer=NAME")
    output, grid = grids[-1]  # one that is used several times: its last use
    (gradient,) = torch.autograd.grad(score.sum(), [output], allow_unused=True)
    if gradient is None:
        raise UserError(f"the answer of {network.name} does not depend on its layer {name}; name another")
    features, slopes = grid.features(output), grid.features(gradient)
    coarse = (slopes.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu()
    whole = torch.nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
    return whole[:, 0].detach().float().cpu()


BASELINES = ("mean", "black", "grey", "white", "blur")


def make_baseline(batch: torch.Tensor, kind: str) -> torch.Tensor:
    """Return images that show nothing: each one's mean colour (blind to no object), one colour, or a strong blur."""
    flat = {"black": 0.0, "grey": 0.5, "white": 1.0}
    if kind in flat:
        return torch.full_like(batch, flat[kind])
    if kind == "mean":
        return batch.mean((2, 3), keepdim=True).expand_as(batch).contiguous()
    if kind != "blur":
        raise unknown("baseline", kind, BASELINES)
    small = torch.nn.functional.interpolate(batch, (4, 4), mode="area")
    return torch.nn.functional.interpolate(small, batch.shape[-2:], mode="bilinear", align_corners=False)


METHODS: dict[str, tuple[Callable[..., Any], dict[str, type]]] = {
    "gradcam": (gradcam, {"layer": str}),
    "integrated_gradients": (integrated_gradients, {"steps": int, "baseline": str}),
    "occlusion": (occlusion, {"window": int, "stride": int, "baseline": str}),
}
"""Name → function and its options."""

GRADIENT_FREE = ("occlusion",)


@dataclass(frozen=True)
class AttributionMethod:
    """A method with its options; ``text`` is the name that the user writes and rows record."""

    name: str
    text: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __call__(self, network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return maps, (n, height, width) ≥ 0 on the CPU."""
        maps: torch.Tensor = METHODS[self.name][0](network, batch, targets, **self.options)
        return maps

    def check(self, network: ExplainedNetwork) -> None:
        """Raise UserError if the method cannot explain a model."""
        if self.name in GRADIENT_FREE:
            return
        if not network.differentiable:
            raise UserError(
                f"{self.name} needs gradients, and {network.name} has none; {' and '.join(GRADIENT_FREE)} needs only "
                "the model's answers"
            )
        if self.name == "gradcam" and network.module is None:
            raise UserError(f"gradcam watches a network's layers, and {network.name} shows none; try occlusion")


def parse_methods(text: str) -> list[AttributionMethod]:
    """Read ``gradcam,integrated_gradients?steps=64,occlusion?window=16&stride=8``."""
    methods = [_parse(part) for part in split_list(text)]
    if not methods:
        raise UserError(f"no method is named; there are {', '.join(METHODS)}")
    return list(dict.fromkeys(methods))


def _parse(text: str) -> AttributionMethod:
    parsed = parse_name(text, tagged=False)
    if parsed.scheme or parsed.name not in METHODS:
        raise unknown("method", text.partition("?")[0], METHODS)
    kinds = METHODS[parsed.name][1]
    for key, value in parsed.options.items():
        if key not in kinds:
            raise unknown(f"option of {parsed.name}", key, kinds)
        if kinds[key] is int and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 4096):
            raise UserError(f"{parsed.name}?{key}= takes a whole number from 1 to 4096, not {value!r}")
    options = {key: parsed.text(key) if kinds[key] is str else value for key, value in sorted(parsed.options.items())}
    if options.get("baseline", BASELINES[0]) not in BASELINES:
        raise unknown("baseline", options["baseline"], BASELINES)
    settled = "&".join(f"{key}={value}" for key, value in options.items())
    return AttributionMethod(parsed.name, parsed.name + (f"?{settled}" if settled else ""), options)
