"""``hf:NAME-OR-FOLDER`` and ``owl:NAME-OR-FOLDER``: detectors of the transformers library.

``hf:`` are trained for a list of classes (DETR, RT-DETR, YOLOS …), ``owl:`` are asked for classes in words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.protocols import LEAST_SCORE
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.detectors.batched import Answer, BatchedDetector, PlacedImage
from holdfast.models.options import display_name
from holdfast.models.torch_classifier import exact, picture
from holdfast.models.transformers import fetched, hub_place, shape_of

KIND = "an object detector"
PROMPT = "a photo of a {}"


class TransformersDetector(BatchedDetector):
    """A ``Detector`` around a model and its processor; ``words`` are the prompts of one that is asked in words."""

    def __init__(
        self, name: str, model: Any, processor: Any, labels: LabelSpace, device: str, words: Sequence[str] = ()
    ) -> None:
        self.name, self.labels, self.device = name, labels, resolve_device(device)
        self._processor, self._words = processor, list(words)
        image_processor = getattr(processor, "image_processor", processor)
        self.fingerprint = fingerprint(
            {
                "architecture": f"{type(model).__name__}/{json.dumps(shape_of(model.config), sort_keys=True)}",
                "weights": weights_sha256(model), "processor": json.loads(image_processor.to_json_string()),
                "labels": labels, "words": self._words, "least": LEAST_SCORE,
            }
        )  # fmt: skip
        self._model = model.float().eval().requires_grad_(False).to(self.device)
        self.takes_tensors = any(base.__name__ == "TorchvisionBackend" for base in type(image_processor).__mro__)
        self._text = processor.tokenizer(self._words, padding=True, return_tensors="pt") if self._words else {}

    def prepare(self, image: Image) -> tuple[Any, PlacedImage]:
        """Return the pixel values of one image; boxes come back as shares of it."""
        image_processor = getattr(self._processor, "image_processor", self._processor)
        prepared = image_processor(images=picture(image, crops_centre=False), return_tensors="pt")
        height, width = image.shape[:2]
        return prepared["pixel_values"][0], PlacedImage(height, width, 1 / width, 1 / height)

    def ask(self, batch: list[Any]) -> list[Answer]:
        """Return the boxes of inputs of one shape, as shares of the image's sides."""
        with torch.inference_mode(), exact():
            return self._found(torch.stack(batch).to(self.device))

    def ask_tensors(self, pictures: Any) -> tuple[list[Answer], PlacedImage]:
        """Return the boxes of images NCHW uint8, prepared on their device, as shares of the images' sides."""
        image_processor = getattr(self._processor, "image_processor", self._processor)
        prepared = image_processor(images=list(pictures), return_tensors="pt", device=self.device)
        height, width = pictures.shape[2:]
        return self._found(prepared["pixel_values"]), PlacedImage(height, width, 1 / width, 1 / height)

    def _found(self, pixels: Any) -> list[Answer]:
        if self._words:
            text = {key: value.repeat(len(pixels), 1).to(self.device) for key, value in self._text.items()}
            outputs = self._model(pixel_values=pixels, **text)
            find = self._processor.post_process_grounded_object_detection
        else:
            outputs = self._model(pixel_values=pixels)
            find = self._processor.post_process_object_detection
        sizes = torch.ones(len(pixels), 2, device=self.device)
        answers = find(outputs, threshold=LEAST_SCORE, target_sizes=sizes)
        return [(answer["boxes"].float(), answer["scores"].float(), answer["labels"]) for answer in answers]


def load(name: Name, *, device: str) -> TransformersDetector:
    """Load a detector by its hub name or local folder, with its own image processor.

    Weights are read from safetensors only and code in the repository is never run. Options: ``labels=FILE``, and
    ``task=detect`` for a hub name that has not been fetched yet.
    """
    options = checked(name, {"labels": str, "task": str})
    model, processor = fetched(name, kind=KIND, auto="AutoModelForObjectDetection")
    names = [str(model.config.id2label[index]) for index in sorted(model.config.id2label)]
    labels = label_spaces.from_option(options.get("labels"), len(names), LabelSpace(tuple(names)))
    return TransformersDetector(display_name(name, hub_place(name)[3]), model, processor, labels, device)


def load_owl(name: Name, *, device: str, classes: Sequence[str] | None = None) -> TransformersDetector:
    """Load a zero-shot detector, which is asked for the dataset's classes in words.

    Options: ``prompt``, a sentence with {} for the class; ``labels=FILE``, other classes than the dataset's.
    """
    options = checked(name, {"labels": str, "prompt": str})
    prompt = options.get("prompt", PROMPT)
    if "{}" not in prompt:
        raise UserError(f"the prompt of owl: needs {{}} in place of the class; {prompt!r} has none")
    names = label_spaces.read_names(options["labels"]) if "labels" in options else list(classes or ())
    if not names:
        raise UserError("owl: is asked for classes by name; use it on a dataset, or name them with ?labels=FILE")
    auto, shown = "AutoModelForZeroShotObjectDetection", display_name(name, hub_place(name)[3])
    model, processor = fetched(name, kind=KIND, auto=auto, processor="AutoProcessor")
    words = [prompt.format(each) for each in names]
    return TransformersDetector(shown, model, processor, LabelSpace(tuple(names)), device, words)
