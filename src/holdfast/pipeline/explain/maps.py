"""A run's models and images → attribution maps, as rows of ``details/attributions``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.attribution import (
    AttributionMethod,
    ExplainedNetwork,
    look,
    of_classifier,
    of_segmenter,
    overlay,
    randomised,
    rank_correlation,
    shuffled,
    stages,
    structural_similarity,
)
from holdfast.attribution.layers import find_layer
from holdfast.attribution.measures import Map
from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import safe_part, write_atomic
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name
from holdfast.core.types import Collection, Image, Mask
from holdfast.data.labels import LabelMap, class_keys, map_labels
from holdfast.data.writers import encode_image
from holdfast.engine import thread_pool
from holdfast.models import load_segmenter, local_dir
from holdfast.models.attacks import model_input
from holdfast.models.torch_classifier import as_batch, as_pictures, exact
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.jobs.rows import answer_each, answered
from holdfast.pipeline.segment import networks
from holdfast.pipeline.specs import ExplainSpec
from holdfast.store import Run

LABEL, PREDICTION = "label", "prediction"


@dataclass(frozen=True)
class AskedScores:
    """What is explained of a batch: the targets of ``Network.score``, and the name of each image's target."""

    targets: list[torch.Tensor]
    classes: list[str]


@dataclass(frozen=True)
class ExplainedModel:
    """A model under explanation."""

    network: ExplainedNetwork  # what is asked for scores
    # RGB image of any size → HWC uint8 as the network sees it, after the model's own resizing and cropping
    see: Callable[[Image], Image]
    # batch, labels, masks in the model's view and ``label`` or ``prediction`` → what is explained
    ask: Callable[[torch.Tensor, Sequence[str], Sequence[Mask], str], AskedScores]
    model: Any  # the classifier or segmenter itself
    tested: Tested | None = None  # what the rows' ids are made of; None if the weights are in the run itself

    def see_mask(self, mask: Mask) -> Mask:
        """Return the mask, taken the same way as the image."""
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
            size = recorded["trained_by"]["size"]
            architecture = networks.resolve(text, size=size, pretrained=recorded["pretrained"])
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
    network = of_classifier(classifier)

    def scores(batch: torch.Tensor) -> torch.Tensor:
        if network.differentiable:
            with torch.no_grad():
                return torch.as_tensor(classifier.logits(batch)).float().cpu()
        return torch.from_numpy(classifier.predict(as_pictures(batch)))

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

    return ExplainedModel(network, lambda image: model_input(classifier, image), ask, classifier)


def segmenter_subject(segmenter: Any, labels: LabelMap) -> ExplainedModel:
    """Return a segmenter to explain: its logits inside the true mask (``label``) or where the class is predicted."""
    # Of a class with several outputs the one with the highest mean in the mask is explained.

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

    return ExplainedModel(of_segmenter(segmenter), segmenter.shown, ask, segmenter)


NO_FOREGROUND = "nothing of the mask is in what the model sees"
ALL_FOREGROUND = "the mask covers all that the model sees"
EMPTY = "the map is zero everywhere"


@dataclass(frozen=True)
class Item:
    """An image in a model's view: HWC uint8, where its foreground is, and whether its maps are kept as images."""

    # ``cascaded`` says whether its maps are made again layer by layer if that is asked for; ``methods`` has the
    # texts of those that are missing, None: all.

    row_id: str
    label: str
    view: Image
    mask: Mask
    kept: bool
    cascaded: bool = True
    methods: Sequence[str] | None = None


class MapMaker:
    """One model's maps. What is costly (a layer, shuffled weights) is found once."""

    def __init__(
        self, subject: ExplainedModel, options: ExplainSpec, methods: Sequence[AttributionMethod], run: Path
    ) -> None:
        self.subject, self.options, self.methods, self.run = subject, options, methods, run
        self._threads = thread_pool()  # that measure the maps of a GPU
        self._layers: dict[str, str] = {}
        self._stages: list[frozenset[int]] = []
        module = subject.network.module
        wanted = (options.randomise or options.cascade) and module is not None
        self._shuffled = shuffled(module, seed=options.seed) if wanted and module is not None else None

    def rows(self, items: Sequence[Item]) -> list[dict[str, Any] | Future[dict[str, Any]]]:
        """Return the missing rows of images of one shape, some of them still being measured by threads."""
        rows: list[dict[str, Any] | Future[dict[str, Any]]] = []
        for method in self.methods:
            usable = []
            for item in items:
                share = float(item.mask.mean())
                if item.methods is not None and method.text not in item.methods:
                    continue
                if 0 < share < 1:
                    usable.append(item)
                    continue
                reason = NO_FOREGROUND if share == 0 else ALL_FOREGROUND
                rows.append(self._row(item, method) | {"status": "skipped", "error": reason})
            answers = answer_each(partial(self._measured, method), usable)
            for item, answer in zip(usable, answers, strict=True):
                if isinstance(answer, SampleError):
                    rows.append(self._row(item, method) | answered(answer))
                else:
                    rows.append(answer() if self.subject.network.device == "cpu" else self._threads.submit(answer))
        return rows

    def _measured(self, method: AttributionMethod, items: Sequence[Item]) -> list[Callable[[], dict[str, Any]]]:
        """Make the maps of images; return functions that measure them and make their rows."""
        batch = as_batch([item.view for item in items], self.subject.network.device)
        labels, masks = [item.label for item in items], [item.mask for item in items]
        asked = self.subject.ask(batch, labels, masks, self.options.target)
        maps, layer = self._maps(method, batch, asked)
        others = None
        if self._shuffled is not None:
            with self._randomised():
                others, _ = self._maps(method, batch, asked)
        alike = self._cascade(method, items, batch, asked, maps, others)

        def row(place: int) -> dict[str, Any]:
            item, heat, other = items[place], maps[place], None if others is None else others[place]
            about = {"target_class": asked.classes[place], "layer": layer}
            return self._row(item, method) | about | self._where(item, method, heat, other) | alike.get(place, {})

        return [partial(row, place) for place in range(len(items))]

    def _cascade(
        self,
        method: AttributionMethod,
        items: Sequence[Item],
        batch: torch.Tensor,
        asked: AskedScores,
        maps: Sequence[Map],
        others: Sequence[Map] | None,
    ) -> dict[int, dict[str, list[float]]]:
        """Return how alike maps stay as ever more layers are shuffled, by place; ``others`` are the last."""
        network = self.subject.network
        wanted = [place for place, item in enumerate(items) if item.cascaded and look(maps[place], item.mask)]
        if not self.options.cascade or others is None or not network.differentiable or not wanted:
            return {}
        part, own = batch[wanted], AskedScores([target[wanted] for target in asked.targets], asked.classes)
        if not self._stages:
            self._stages = stages(network, part[:1], [target[:1].to(network.device) for target in own.targets])
        series = []
        for only in self._stages[:-1]:
            with self._randomised(only):
                series.append(self._maps(method, part, own)[0])
        series.append([others[place] for place in wanted])
        return {
            place: {
                "cascade": [rank_correlation(maps[place], randomised[at]) for randomised in series],
                "cascade_similarity": [structural_similarity(maps[place], randomised[at]) for randomised in series],
            }
            for at, place in enumerate(wanted)
            if all(np.isfinite(randomised[at]).all() for randomised in series)
        }

    def _maps(self, method: AttributionMethod, batch: torch.Tensor, asked: AskedScores) -> tuple[list[Map], str]:
        network = self.subject.network
        layer = ""
        with exact():  # as in ``eval``: a map should not depend on its neighbours in a batch
            if method.name == "gradcam":
                if method.text not in self._layers:
                    first = [target[:1].to(network.device) for target in asked.targets]
                    wanted = str(method.options.get("layer", ""))
                    self._layers[method.text] = find_layer(network, batch[:1].to(network.device), first, wanted)
                layer = self._layers[method.text]
                maps = AttributionMethod(method.name, method.text, {"layer": layer})(network, batch, asked.targets)
            else:
                maps = method(network, batch, asked.targets)
        return [np.asarray(heat, np.float32) for heat in maps.numpy()], layer

    @contextmanager
    def _randomised(self, only: frozenset[int] | None = None) -> Iterator[None]:
        module = self.subject.network.module
        assert module is not None and self._shuffled is not None
        with randomised(module, self._shuffled, only):
            yield

    def _where(self, item: Item, method: AttributionMethod, heat: Map, other: Map | None) -> dict[str, Any]:
        attention = look(heat, item.mask)
        row: dict[str, Any] = {"area": float(item.mask.mean()), "picture": self._picture(item, method, heat)}
        if attention is None:
            if np.isfinite(heat).all():
                return row | {"status": "empty", "error": EMPTY}
            return row | {"status": "error", "error": "the map is not finite"}
        row |= {"status": "ok", "share": attention.share, "ratio": attention.ratio, "hit": attention.hit}
        if other is not None and np.isfinite(other).all():
            of_other = look(other, item.mask)
            # A map of zeros is nowhere: as good as one that is the same everywhere.
            row["share_randomised"] = attention.area if of_other is None else of_other.share
            row["rank_correlation"] = rank_correlation(heat, other)
            row["structural_similarity"] = structural_similarity(heat, other)
        return row

    def _picture(self, item: Item, method: AttributionMethod, heat: Map) -> str:
        if not item.kept or not np.isfinite(heat).all():
            return ""
        name = f"{item.row_id}-{fingerprint([method.text, self.options.target])[:8]}.jpg"
        file = self.run / "attributions" / name  # not below the table: other programs read that as one dataset
        jpeg = encode_image(overlay(item.view, heat, item.mask), format="jpeg", quality=85)
        write_atomic(file, jpeg)
        return file.relative_to(self.run).as_posix()

    def _row(self, item: Item, method: AttributionMethod) -> dict[str, Any]:
        return {"row_id": item.row_id, "method": method.text, "target": self.options.target}
