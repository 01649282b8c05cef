"""``clip:ARCHITECTURE@WEIGHTS`` (open_clip) and ``clip:hf/NAME-OR-FOLDER`` (transformers): zero-shot classifiers.

``clip:embedded`` is the small one that Holdfast carries for its drawn world.

Probabilities are the softmax over the dataset's classes of scale × cosine between an image and the prompts of a class.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, UserError, first_line, out_of_memory
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import check_complete, hub_errors, mind_the_hub, offline, refused_pickle, resolve_device
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.options import display_name
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier, picture
from holdfast.models.transformers import hub_place, preprocessing, shape_of

TEMPLATE = "a photo of a {class}"
"""The prompt of a class if ``?template=`` gives none."""

ORACLE = Path(__file__).parents[1] / "assets" / "oracle"
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Clip:
    """An image tower and a text tower with one embedding space."""

    module: torch.nn.Module  # both towers
    encode_image: Callable[[torch.Tensor], torch.Tensor]  # normalised batch NCHW → (n, width), not yet of unit length
    encode_text: Callable[[Sequence[str]], torch.Tensor]  # texts → (n, width), likewise, on the module's device
    scale: float  # what cosines are multiplied with before the softmax
    preprocessing: Preprocessing  # of the image tower
    architecture: str  # text that changes whenever the computation could


def load(name: Name, *, device: str, classes: Sequence[str] | None = None) -> TorchClassifier:
    """Load a zero-shot classifier over the dataset's classes.

    Options: ``template=an image of a {class}``, several separated by ``|`` (their embeddings are averaged);
    ``ensemble=openai`` (the 80 that CLIP was published with), ``simple`` (7 of them) or ``FILE`` (a template a line)
    instead; and ``labels=FILE`` for classes other than the dataset's.
    """
    options = checked(name, {"template": str, "ensemble": str, "labels": str})
    if "template" in options and "ensemble" in options:
        raise UserError("clip: takes template= or ensemble=, not both")
    templates = (
        _ensemble(options["ensemble"]) if "ensemble" in options else _templates(options.get("template", TEMPLATE))
    )
    names = label_spaces.read_names(options["labels"]) if "labels" in options else list(classes or ())
    if not names:
        raise UserError(f"clip:{name.whole} names the dataset's classes; give it some with ?labels=FILE")
    clip = load_clip(name, device=device)
    # Of each class the normalised mean over the templates' unit vectors.
    means = [text_embeddings(clip, [text.replace("{class}", each) for text in templates]).mean(0) for each in names]
    body = name.name.removeprefix("hf/")
    shown = Path(body).name if Path(body).is_dir() else name.whole
    return TorchClassifier(
        display_name(name, shown),
        _zero_shot(clip, _unit(torch.from_numpy(np.stack(means)))),
        LabelSpace(tuple(names)),
        clip.preprocessing,
        architecture=f"{clip.architecture}/{json.dumps(templates)}",
        device=device,
    )


def load_clip(name: Name, *, device: str = "auto") -> Clip:
    """Load both towers of a name, on a device, in float32; options are ignored."""
    device = resolve_device(device)
    if name.name == "embedded":
        if not ORACLE.is_dir():
            raise UserError("the embedded oracle is not in this installation; train it with recipes/oracle.py")
        name = Name(name.scheme, f"hf/{ORACLE}")
    if name.name.startswith("hf/"):
        return _transformers(name, device)
    return _open_clip(name, device)


def image_embeddings(clip: Clip, images: Sequence[Image]) -> NDArray[np.float32]:
    """Return unit vectors, (n, width), of RGB images of any sizes."""
    rows = []
    crops, device = clip.preprocessing.crops_centre, next(clip.module.parameters()).device
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            pictures = [picture(image, crops_centre=crops) for image in images[start : start + _BATCH]]
            batch = torch.stack([clip.preprocessing.transform(picture) for picture in pictures])
            batch = batch.flip(1) if clip.preprocessing.channels == "bgr" else batch
            rows.append(_unit(clip.encode_image(batch.to(device))).cpu().numpy())
    return np.concatenate(rows) if rows else np.empty((0, _width(clip)), np.float32)


def text_embeddings(clip: Clip, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return unit vectors, (n, width), of texts."""
    if not texts:
        return np.empty((0, _width(clip)), np.float32)
    with torch.inference_mode():
        embeddings: NDArray[np.float32] = _unit(clip.encode_text(texts)).cpu().numpy()
    return embeddings


def _templates(text: str) -> list[str]:
    templates = [part.strip() for part in text.split("|") if part.strip()]
    if not templates or not all("{class}" in template for template in templates):
        raise UserError(f"every template needs {{class}}, as in 'an image of a {{class}}', and {text!r} has none")
    return templates


def _ensemble(which: str) -> list[str]:
    """Return a published list of templates, or the lines of a file."""
    if which in ("openai", "simple"):
        import open_clip

        published = open_clip.OPENAI_IMAGENET_TEMPLATES if which == "openai" else open_clip.SIMPLE_IMAGENET_TEMPLATES
        return [str(template("{class}")) for template in published]
    if not Path(which).is_file():
        raise UserError(f"clip: option ensemble={which} is neither openai nor simple nor a file with a template a line")
    try:
        lines = Path(which).read_text(encoding="utf8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"the templates {Path(which).name} are not text: {error}") from error
    return _templates("|".join(lines))


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows.float(), dim=-1)


def _width(clip: Clip) -> int:
    return int(text_embeddings(clip, ["a"]).shape[1])


def _zero_shot(clip: Clip, classes: torch.Tensor) -> torch.nn.Module:
    """Return a module from a normalised batch to scale × cosines, (n, classes)."""

    class ZeroShot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.towers = clip.module
            # Not part of the weights' hash: the same prompts differ in their last bits between machines.
            self.register_buffer("classes", classes, persistent=False)
            self.classes: torch.Tensor

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return clip.scale * _unit(clip.encode_image(batch)) @ self.classes.T

    return ZeroShot()


def _open_clip(name: Name, device: str) -> Clip:
    import open_clip
    from open_clip.transform import PreprocessCfg, image_transform_v2

    architecture = name.name
    if not architecture.startswith(("local-dir:", "hf-hub:")):
        _check_open_clip(name)
    if not architecture.startswith("local-dir:"):
        mind_the_hub()
    try:
        _refuse_code(name, open_clip.get_model_config(architecture))
        model = open_clip.create_model(
            architecture, pretrained=name.tag or None, device=device, require_pretrained=True, weights_only=True
        )
        tokenizer = open_clip.get_tokenizer(architecture)
    except pickle.UnpicklingError as error:
        raise refused_pickle(f"clip:{_short(name)}", error) from error
    except HoldfastError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        if architecture.startswith("local-dir:") or Path(name.tag).is_file():
            raise UserError(f"clip:{_short(name)} cannot be loaded: {first_line(error)}") from error
        raise offline(f"clip:{name.whole}", error) from error
    model = model.float().eval()
    settings = open_clip.get_model_preprocess_cfg(model)
    size = settings["size"]
    return Clip(
        module=model,
        encode_image=model.encode_image,
        encode_text=lambda texts: model.encode_text(tokenizer(list(texts)).to(next(model.parameters()).device)),
        scale=float(model.logit_scale.detach().exp()),
        preprocessing=Preprocessing(
            transform=image_transform_v2(PreprocessCfg(**settings), is_train=False),
            size=(size, size) if isinstance(size, int) else tuple(size),
            mean=tuple(settings["mean"]),
            std=tuple(settings["std"]),
            crops_centre=settings["resize_mode"] == "shortest",
            description={"library": "open_clip", **settings},
        ),
        architecture=f"open_clip/{_short(name) if name.tag else type(model).__name__}",
    )


def _check_open_clip(name: Name) -> None:
    """Raise a UserError with the nearest names if open_clip has no such architecture or weights."""
    import open_clip

    if name.name not in open_clip.list_models():
        raise unknown("open_clip architecture", name.name, open_clip.list_models())
    if not name.tag:
        raise UserError(f"clip:{name.name} says which weights, as in clip:{name.name}@openai or clip:{name.name}@FILE")
    tags = open_clip.list_pretrained_tags_by_model(name.name)
    if name.tag not in tags and not Path(name.tag).is_file():
        raise unknown(f"set of weights for {name.name}", name.tag, tags)


def _refuse_code(name: Name, config: Any) -> None:
    """Refuse a repository's tokenizer options: open_clip passes them on, and one of them runs the repository's code."""
    text_config = config.get("text_cfg") if isinstance(config, dict) else None
    options = text_config.get("tokenizer_kwargs") if isinstance(text_config, dict) else None
    if isinstance(options, dict) and {"trust_remote_code", "code_revision"} & set(options):
        raise UserError(f"clip:{_short(name)} asks to run code that is next to its weights, which is never done")


def _short(name: Name) -> str:
    """Return the name without folders."""
    if name.name.startswith("local-dir:"):
        return Path(name.name).name
    return f"{name.name}@{Path(name.tag).name}" if Path(name.tag).is_file() else name.whole


def _transformers(name: Name, device: str) -> Clip:
    """Load both towers by transformers; only safetensors are read, and code next to them is never run."""
    import transformers

    where, revision, local, body = hub_place(replace(name, name=name.name.removeprefix("hf/")))
    shown = f"clip:hf/{body if local else where}"
    trust: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    with hub_errors(shown, local=local):
        processor = transformers.AutoImageProcessor.from_pretrained(where, **trust)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **trust)
        model, report = transformers.AutoModel.from_pretrained(
            where, **trust, use_safetensors=True, output_loading_info=True
        )
    if not all(hasattr(model, needed) for needed in ("get_image_features", "get_text_features", "logit_scale")):
        raise UserError(f"{shown} is a {type(model).__name__}, not an image and a text tower")
    check_complete(report, shown)
    model = model.float().eval().to(device)
    settings: Mapping[str, Any] = model.config.text_config.to_dict()
    longest = min(int(settings.get("max_position_embeddings", 77)), int(tokenizer.model_max_length))

    def encode_text(texts: Sequence[str]) -> torch.Tensor:
        # To the full length, because some towers (SigLIP) were trained so and look at the padding.
        tokens = tokenizer(list(texts), padding="max_length", truncation=True, max_length=longest, return_tensors="pt")
        return _features(model.get_text_features(**tokens.to(next(model.parameters()).device)))

    return Clip(
        module=model,
        encode_image=lambda batch: _features(model.get_image_features(pixel_values=batch)),
        encode_text=encode_text,
        scale=float(model.logit_scale.detach().exp()),
        preprocessing=preprocessing(processor),
        architecture=f"transformers/{type(model).__name__}/{json.dumps(shape_of(model.config), sort_keys=True)}",
    )


def _features(output: Any) -> torch.Tensor:
    """Return the projected features, which newer versions wrap."""
    features: torch.Tensor = getattr(output, "pooler_output", output)
    return features
