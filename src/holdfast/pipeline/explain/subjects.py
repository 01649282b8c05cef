"""Models of a run as they are explained: what they see of a picture, and which answer is asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import safe_part
from holdfast.core.names import Name
from holdfast.core.types import Collection, Image, Mask
from holdfast.data.labels import LabelMap, class_keys, map_labels
from holdfast.explain import ExplainedNetwork, of_classifier, of_segmenter
from holdfast.models import load_segmenter, local_dir
from holdfast.models.attacks import model_input
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.segment import networks
from holdfast.store import Run

if TYPE_CHECKING:
    import torch

LABEL, PREDICTION = "label", "prediction"


@dataclass(frozen=True)
class AskedScores:
    """What is explained of a batch: the targets of ``Network.score``, and the name of each picture's target."""

    targets: list[torch.Tensor]
    classes: list[str]


@dataclass(frozen=True)
class ExplainedModel:
    """A model under explanation.

    Attributes:
        network: what is asked for scores.
        see: RGB image of any size → HWC uint8 as the network sees it, after the model's own resizing and cropping.
        ask: batch, labels, masks in the model's view and ``label`` or ``prediction`` → what is explained.
        tested: what the rows' ids are made of; None where the weights lie in the run itself.
    """

    network: ExplainedNetwork
    see: Callable[[Image], Image]
    ask: Callable[[torch.Tensor, Sequence[str], Sequence[Mask], str], AskedScores]
    tested: Tested | None = None

    def see_mask(self, mask: Mask) -> Mask:
        """Return the mask, taken the same way as the picture."""
        painted = np.repeat(mask.astype(np.uint8)[..., None] * np.uint8(255), 3, axis=2)
        return np.asarray(self.see(painted)[..., 0] > 127)


def evaluated(spec: EvaluateSpec, collection: Collection, text: str) -> ExplainedModel:
    """Load a model that ``holdfast eval`` ran, by the name it has there."""
    (tested,) = load_models(replace(spec, models=(text,)), collection)
    return replace(classifier_subject(tested.classifier, tested.labels), tested=tested)


def trained(run: Run, model: str, trained_on: str, fold: int, device: str) -> ExplainedModel:
    """Load a model that ``holdfast train`` or ``segment`` left in the run."""
    recorded = run.spec()
    name = safe_part(model.replace(":", "-"))
    folder = run.path / "models" / name / safe_part(trained_on) / f"fold-{fold}"
    if not (folder / "config.json").is_file():
        raise UserError(f"the run has no model of {model} trained on {trained_on}, fold {fold}")
    if recorded.get("verb") == "segment":
        for text in recorded["architectures"]:
            architecture = networks.resolve(
                text, size=recorded["trained_by"]["size"], pretrained=recorded["pretrained"]
            )
            if architecture.name == model:
                segmenter = networks.load(architecture, folder, device=device)
                return segmenter_subject(segmenter, map_labels(tuple(recorded["classes"]), {}, segmenter.labels))
        raise UserError(f"{model} is not among the architectures of this run's last segment; run that again with it")
    classifier = local_dir.load(Name("local-dir", str(folder)), device=device)
    return classifier_subject(classifier, map_labels(tuple(recorded["classes"]), {}, classifier.labels))


def segmented(run: Run, collection: Collection, model: str, device: str) -> ExplainedModel:
    """Load a segmenter that ``holdfast segment --models`` tested, with the same outputs."""
    recorded = run.spec()
    keys = class_keys(collection, recorded.get("labels"))
    for text in recorded["models"]:
        segmenter = load_segmenter(text, device=device)
        if segmenter.name == model:
            return segmenter_subject(segmenter, map_labels(collection.classes, keys, segmenter.labels))
    raise UserError(f"{model} is not among the models of this run's last segment; run that again with it")


def classifier_subject(classifier: Any, labels: LabelMap) -> ExplainedModel:
    """Return a classifier to explain; of a class with several outputs, the highest one is explained."""
    import torch

    network = of_classifier(classifier)

    def scores(batch: torch.Tensor) -> torch.Tensor:
        if network.differentiable:
            with torch.no_grad():
                return torch.as_tensor(classifier.logits(batch)).float().cpu()
        pictures = (batch * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        return torch.from_numpy(classifier.predict([np.ascontiguousarray(picture) for picture in pictures]))

    def ask(batch: torch.Tensor, names: Sequence[str], masks: Sequence[Mask], target: str) -> AskedScores:
        del masks
        answers = scores(batch)
        if not bool(answers.isfinite().all()):
            raise SampleError("the model's scores are not finite")
        if target == PREDICTION:
            places = answers.argmax(1)
            return AskedScores([places], [labels.outputs[int(place)] for place in places])
        chosen = []
        for row, name in zip(answers, names, strict=True):
            own = list(labels.members[labels.classes.index(name)])
            chosen.append(own[int(row[own].argmax())])
        return AskedScores([torch.tensor(chosen)], list(names))

    return ExplainedModel(network, lambda image: model_input(classifier, image), ask)


def segmenter_subject(segmenter: Any, labels: LabelMap) -> ExplainedModel:
    """A segmenter; the class's logits inside its true mask (``label``) or where it is predicted (``prediction``).

    Of a class with several outputs the one with the highest mean in the mask is explained.
    """
    import torch

    def ask(batch: torch.Tensor, names: Sequence[str], masks: Sequence[Mask], target: str) -> AskedScores:
        regions = torch.from_numpy(np.stack(masks)).float()
        with torch.no_grad():
            planes = segmenter.logits(batch).float().cpu()
        planes = torch.nn.functional.interpolate(planes, regions.shape[-2:], mode="bilinear", align_corners=False)
        if not bool(planes.isfinite().all()):
            raise SampleError("the model's scores are not finite")
        chosen = []
        for plane, region, name in zip(planes, regions, names, strict=True):
            own = list(labels.members[labels.classes.index(name)])
            chosen.append(own[int((plane[own] * region).sum((1, 2)).argmax())])
        places = torch.tensor(chosen)
        if target == PREDICTION:
            regions = (planes.argmax(1) == places[:, None, None]).float()
            for name, region in zip(names, regions, strict=True):
                if not bool(region.any()):
                    raise SampleError(f"the model marks no pixel as {name}")
        return AskedScores([places, regions], list(names))

    return ExplainedModel(of_segmenter(segmenter), segmenter.shown, ask)
