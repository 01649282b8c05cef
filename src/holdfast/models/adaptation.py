"""``?adapt=batchnorm``: batch normalisation that is fitted to the images of each condition, without their labels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import unknown
from holdfast.core.types import Image
from holdfast.models.torch_classifier import TorchClassifier

OPTIONS = ("adapt", "adapt_images", "adapt_prior")
IMAGES, MOST_IMAGES = 64, 1024
PRIOR = 16.0
_KINDS = ("batchnorm",)


class AdaptedClassifier:
    """A network whose batch normalisation is fitted to images of one condition before it answers about that condition.

    In every layer the mean becomes N/(N + n) of the trained mean and n/(N + n) of the mean over n images, and the
    variance likewise (Schneider et al. 2020). N is the option ``adapt_prior``: 0 forgets the training. The layers are
    fitted in one pass, each on what the fitted layers before it let through. Answers about an image depend on the
    condition's n images, never on the batch.
    """

    def __init__(self, network: TorchClassifier, *, images: int = IMAGES, prior: float = PRIOR) -> None:
        network = copy.copy(network)
        network._module = copy.deepcopy(network.module)  # a plain model may hold the same one
        network._answering = network._module  # fused layers would keep the numbers of training
        self.adapt_images, self._prior, self._network = images, prior, network
        kinds = torch.nn.modules.batchnorm._BatchNorm
        self._layers: list[Any] = [
            layer for layer in network.module.modules() if isinstance(layer, kinds) and layer.running_mean is not None
        ]
        if not self._layers:
            raise UserError(f"{network.name} has no batch normalisation that adapt=batchnorm could fit; leave it out")
        self.name, self.labels = network.name, network.labels
        self.device, self.preprocessing = network.device, network.preprocessing
        self.fingerprint = fingerprint([network.fingerprint, "batchnorm", images, prior])
        self._module = network.module
        self._trained = self._numbers()
        self._fitted: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self._is_ready = False

    @property
    def batch_size(self) -> int:
        """Images per forward pass."""
        return self._network.batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._network.batch_size = value

    def prepare(self, image: Image) -> torch.Tensor:
        """Prepare an RGB image of any size: the normalised CHW tensor, on the CPU."""
        return self._network.prepare(image)

    def is_fitted(self, condition: str) -> bool:
        """Return whether ``fit`` saw this condition."""
        return condition in self._fitted

    def fit(self, condition: str, prepared: Sequence[torch.Tensor]) -> None:
        """Fit the layers to what ``prepare`` returned for images of a condition, and keep the result by its name."""
        if len(prepared) < 2:
            raise SampleError(f"{self.name} needs 2 or more images of a condition to fit its batch normalisation")
        self._use(self._trained)
        share = len(prepared) / (len(prepared) + self._prior)
        trained = dict(zip(self._layers, self._trained, strict=True))

        def fit_layer(layer: Any, inputs: tuple[torch.Tensor, ...]) -> None:
            batch = inputs[0]
            dimensions = [place for place in range(batch.ndim) if place != 1]
            variance, mean = torch.var_mean(batch, dimensions, correction=0)
            layer.running_mean.copy_(torch.lerp(trained[layer][0], mean, share))
            layer.running_var.copy_(torch.lerp(trained[layer][1], variance, share))

        hooks = [layer.register_forward_pre_hook(fit_layer) for layer in self._layers]
        try:
            with torch.no_grad():
                self._module(torch.stack(list(prepared)).to(self.device))
        finally:
            for hook in hooks:
                hook.remove()
        self._fitted[condition] = self._numbers()

    def use(self, condition: str) -> None:
        """Answer about this condition from now on."""
        self._use(self._fitted[condition])
        self._is_ready = True

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), under the condition that ``use`` named."""
        return self.predict_prepared([self.prepare(image) for image in images])

    def predict_prepared(self, prepared: Sequence[torch.Tensor]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), under the condition that ``use`` named."""
        if not self._is_ready:
            raise UserError(
                f"{self.name}: adapt=batchnorm fits a network to the images of each condition, which holdfast eval "
                "knows; leave the option out here"
            )
        return self._network.predict_prepared(prepared)

    def _numbers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(layer.running_mean.clone(), layer.running_var.clone()) for layer in self._layers]

    def _use(self, numbers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for layer, (mean, variance) in zip(self._layers, numbers, strict=True):
            layer.running_mean.copy_(mean)
            layer.running_var.copy_(variance)


def adapted(model: Any, options: dict[str, Any]) -> Any:
    """Return the model, fitted to conditions as the options behind its name ask for it.

    Options are ``adapt=batchnorm``, ``adapt_images`` (how many images it is fitted to) and ``adapt_prior`` (N).
    """
    for option in options:
        if option not in OPTIONS:
            raise unknown("option", option, OPTIONS)
    kind = options.get("adapt", "")
    if kind not in _KINDS:
        if not kind:
            raise UserError(f"option {next(iter(options))} needs adapt=batchnorm")
        raise unknown("way to adapt", str(kind), _KINDS)
    if not isinstance(model, TorchClassifier):
        raise UserError(f"{model.name} is not a PyTorch network that shows its layers, so adapt=batchnorm cannot fit")
    images, prior = options.get("adapt_images", IMAGES), options.get("adapt_prior", PRIOR)
    if isinstance(images, bool) or not isinstance(images, int) or not 2 <= images <= MOST_IMAGES:
        raise UserError(f"option adapt_images={images} must be a number of images from 2 to {MOST_IMAGES}")
    if isinstance(prior, bool) or not isinstance(prior, (int, float)) or not 0 <= prior < float("inf"):
        raise UserError(f"option adapt_prior={prior} must be a number of images, 0 or more")
    fitted = AdaptedClassifier(model, images=images, prior=float(prior))
    shown = "&".join(f"{option}={options[option]}" for option in OPTIONS if option in options)
    fitted.name = f"{model.name}{'&' if '?' in model.name else '?'}{shown}"
    return fitted
