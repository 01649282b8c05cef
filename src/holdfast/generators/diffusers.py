"""``diffusers:NAME-OR-FOLDER[@REVISION]``: text to image and inpainting with the pipelines of diffusers."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import diffusers
from holdfast.core.names import Name, unknown
from holdfast.core.networks import hub_errors, quiet, resolve_device, weights_sha256
from holdfast.core.types import Image, Mask
from holdfast.generators.loading import (
    INSTEAD,
    check_inpainting,
    check_requests,
    checked_numbers,
    cut_words,
    keep_foreground,
    place,
    shown,
    to_images,
)

_OPTIONS = {
    "steps": int, "guidance": float, "size": int, "batch": int, "negative": str, "dtype": str, "scheduler": str,
}  # fmt: skip


def load(name: Name, *, device: str) -> DiffusersImageMaker:
    """Load a pipeline from safetensors; code in the repository is never run, a safety checker is kept.

    Options: ``steps``, ``guidance``, ``size`` (of generated images, pixels), ``negative`` (prompt), ``scheduler`` (a
    class of diffusers, set up from the pipeline's own configuration), ``batch`` (split longer calls into so many
    images at once), ``dtype=float32|bfloat16|float16`` (bfloat16 on a GPU, else float32).
    """
    options = checked_numbers(name, _OPTIONS, positive=("steps", "size", "batch"))
    device = resolve_device(device)
    pipeline = _fetch(name, _dtype(options.pop("dtype", ""), device))
    if "scheduler" in options:
        pipeline.scheduler = _scheduler(options.pop("scheduler"), pipeline, f"diffusers:{Path(name.name).name}")
    unsplit = {option: value for option, value in name.options.items() if option != "batch"}
    return DiffusersImageMaker(shown(dataclasses.replace(name, options=unsplit)), pipeline.to(device), options)


class DiffusersImageMaker:
    """A ``TextToImage`` and mostly an ``Inpainter``; noise is drawn on the CPU per image, whatever the batch."""

    def __init__(self, name: str, pipeline: Any, options: dict[str, Any]) -> None:
        self.name = name
        self._pipeline = pipeline
        self._options = options
        modules = [part for _, part in sorted(pipeline.components.items()) if isinstance(part, torch.nn.Module)]
        self.fingerprint = fingerprint(
            {
                "library": f"diffusers.{type(pipeline).__name__}",
                "weights": weights_sha256(*modules),
                "scheduler": str(getattr(pipeline, "scheduler", None)),
                "options": {key: value for key, value in options.items() if key != "batch"},
            }
        )
        self._by_task: dict[str, Any] = {}
        pipeline.set_progress_bar_config(disable=True)

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """Return an RGB image per prompt, with the size of the option ``size`` or the pipeline's own."""
        check_requests(prompts, seeds)
        pipeline = self._for("AutoPipelineForText2Image", "makes no images from text")
        size = {"height": self._options["size"], "width": self._options["size"]} if "size" in self._options else {}
        images = []
        step = self._options.get("batch") or max(len(prompts), 1)
        for start in range(0, len(prompts), step):
            part = slice(start, start + step)
            images += self._run(pipeline, prompts[part], seeds[part], size)
        return images

    def cut_words(self, prompts: Sequence[str]) -> list[str]:
        """Return the words at the end of each prompt that no text tower reads; '' if all are read."""
        towers = [
            (tokenizer, limit)
            for name, tokenizer in self._pipeline.components.items()
            if name.startswith("tokenizer") and tokenizer is not None and (limit := self._limit(tokenizer))
        ]
        if not towers:
            return [""] * len(prompts)
        return [
            min((cut_words(tokenizer, limit, prompt) for tokenizer, limit in towers), key=len) for prompt in prompts
        ]

    def _limit(self, tokenizer: Any) -> int:
        """Return how many tokens are read; towers other than CLIP's read as many as the pipeline asks for."""
        longest = int(getattr(tokenizer, "model_max_length", 0))
        asked = inspect.signature(self._pipeline.__call__).parameters.get("max_sequence_length")
        if asked is not None and isinstance(asked.default, int) and "CLIP" not in type(tokenizer).__name__:
            return min(longest, asked.default)
        return longest

    def inpaint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        """Paint everything outside the masks again, one image at a time, since sizes may differ."""
        check_inpainting(prompts, seeds, images, masks)
        pipeline = self._for("AutoPipelineForInpainting", "does not inpaint")
        results = []
        for prompt, seed, image, mask in zip(prompts, seeds, images, masks, strict=True):
            height, width = self._working_size(image)
            inputs = {
                "image": PIL.Image.fromarray(image).resize((width, height), PIL.Image.Resampling.LANCZOS),
                "mask_image": PIL.Image.fromarray(~mask).convert("L").resize((width, height)),
                "height": height,
                "width": width,
            }
            painted = PIL.Image.fromarray(self._run(pipeline, [prompt], [seed], inputs)[0])
            full = painted.resize((image.shape[1], image.shape[0]), PIL.Image.Resampling.LANCZOS)
            results.append(keep_foreground(image, mask, np.asarray(full)))
        return results

    def _working_size(self, image: Image) -> tuple[int, int]:
        """Return height and width at which to paint: the image's, or the option as its longer side, rounded."""
        step = 8 * int(getattr(self._pipeline, "vae_scale_factor", 8))
        scale = self._options["size"] / max(image.shape[:2]) if "size" in self._options else 1.0
        height, width = (max(step, round(side * scale / step) * step) for side in image.shape[:2])
        return height, width

    def _for(self, task: str, complaint: str) -> Any:
        """Return the pipeline of a task, made of the same parts once."""
        if task in self._by_task:
            return self._by_task[task]
        with quiet("diffusers", "transformers"):
            try:
                self._by_task[task] = getattr(diffusers, task).from_pipe(self._pipeline)
            except (ValueError, TypeError, AttributeError) as error:
                wanted = {"prompt"} if task == "AutoPipelineForText2Image" else {"prompt", "mask_image"}
                if not wanted <= set(inspect.signature(self._pipeline.__call__).parameters):
                    raise UserError(f"{self.name} {complaint}: it is a {type(self._pipeline).__name__}") from error
                self._by_task[task] = self._pipeline
        return self._by_task[task]

    def _run(self, pipeline: Any, prompts: Sequence[str], seeds: Sequence[int], inputs: dict[str, Any]) -> list[Image]:
        known = inspect.signature(pipeline.__call__).parameters
        asked = {
            "num_inference_steps": self._options.get("steps"),
            "guidance_scale": self._options.get("guidance"),
            "negative_prompt": [self._options["negative"]] * len(prompts) if "negative" in self._options else None,
            **inputs,
        }
        asked = {key: value for key, value in asked.items() if value is not None and key in known}
        pipeline.set_progress_bar_config(disable=True)
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        with torch.inference_mode(), quiet("diffusers", "transformers"):
            answer = pipeline(prompt=list(prompts), generator=generators, output_type="pt", **asked).images
            return _images(answer)


def _images(answer: Any) -> list[Image]:
    """Turn a pipeline's answer (NCHW in 0..1, or NHWC) into images; black if a number is not finite."""
    if isinstance(answer, list):
        return [np.array(picture.convert("RGB")) for picture in answer]
    batch = answer if isinstance(answer, torch.Tensor) else torch.from_numpy(np.asarray(answer)).permute(0, 3, 1, 2)
    batch = batch.float()
    finite = torch.isfinite(batch).flatten(1).all(1).view(-1, 1, 1, 1)
    return to_images(torch.where(finite, batch, 0.0))


def _scheduler(kind: str, pipeline: Any, shown_name: str) -> Any:
    """Make a scheduler of this class from the pipeline's own configuration; refuse one of another family."""
    with quiet("diffusers", "transformers"):
        fitting = {type(pipeline.scheduler).__name__} | {other.__name__ for other in pipeline.scheduler.compatibles}
        if kind not in fitting:
            raise unknown(f"scheduler that fits {shown_name}", kind, fitting)
        return getattr(diffusers, kind).from_config(pipeline.scheduler.config)


def _dtype(option: str, device: str) -> Any:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if option and option not in known:
        raise UserError(f"diffusers: option dtype={option} should be {', '.join(known)}")
    return known[option] if option else (torch.bfloat16 if device.startswith("cuda") else torch.float32)


def _fetch(name: Name, dtype: Any) -> Any:
    where, revision, local = place(name)
    if local:
        _check_parts(Path(where))
    shown = f"diffusers:{Path(where).name if local else where}"
    with hub_errors(shown, local=local, instead=INSTEAD, libraries=("diffusers", "transformers")):
        return diffusers.DiffusionPipeline.from_pretrained(
            where, revision=revision, torch_dtype=dtype, use_safetensors=True, trust_remote_code=False
        )


def _check_parts(folder: Path) -> None:
    """Raise UserError with the name of a part that a pipeline's folder lacks."""
    shown_name = f"diffusers:{folder.resolve().name}"
    try:
        parts = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{shown_name} cannot be loaded: it has no model_index.json of a pipeline") from error
    for part, kind in parts.items() if isinstance(parts, dict) else ():
        if not isinstance(kind, list) or len(kind) != 2 or kind[1] is None:
            continue  # a setting, or a part that this pipeline does without
        if not (folder / part).is_dir():
            raise UserError(f"{shown_name} cannot be loaded: its part {part!r} ({kind[1]}) is missing")
        weighty = (folder / part / "config.json").is_file()  # schedulers, tokenizers and the like have none
        if weighty and not any((folder / part).glob("*.safetensors")):
            raise UserError(f"{shown_name} cannot be loaded: its part {part!r} ({kind[1]}) has no safetensors weights")
