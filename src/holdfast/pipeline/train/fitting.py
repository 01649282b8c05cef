"""One job's training: images, validation, the best epoch, curves, and the folder that is a model's name at once."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, MachineError, UserError, out_of_memory
from holdfast.core.files import write_atomic
from holdfast.core.fingerprint import bytes_sha256, seed_from
from holdfast.core.lazy import torch
from holdfast.core.schema import CURVES
from holdfast.pipeline.jobs.progress import version
from holdfast.pipeline.specs.training import Recipe
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.pictures import Batch, Source
from holdfast.pipeline.train.plan import Places, TrainingJob, TrainSpec
from holdfast.store import read_json, write_table
from holdfast.training import augment, checkpoint, robust
from holdfast.training.checkpoint import DRAWN_WORLD, write_model
from holdfast.training.loop import DivergedError, Epoch, TrainingOptions, decayed, fit

MOVES = augment.Moves(rotation=10, zoom=0.2, shift=0.1)

VERSIONS = ("holdfast", "torch", "timm", "torchvision", "numpy", "opencv-python-headless")


@dataclass
class Fit:
    """One job's training; ``rows`` is its history so far, also if it fails."""

    spec: TrainSpec
    job: TrainingJob
    classes: tuple[str, ...]
    source: Source
    places: Places
    run: Path
    device: str
    watch: Any = None  # called with (epochs done, epochs)

    def __post_init__(self) -> None:
        self.recipe: Recipe = self.spec.settled()
        self.rows: list[dict[str, float]] = []
        self.work = self.run / "jobs" / self.job.folder
        self.folder = self.run / "models" / self.job.folder
        labels = self.source.labels.cpu()[self.places.train]
        self.counts = torch.bincount(labels, minlength=len(self.classes))
        self.size = min(self.recipe.batch_size, len(self.places.train))
        self.labels = labels
        architecture = self.job.architecture
        # One subtraction and one product a pixel: (x / 255 − mean) / std.
        self.shift = (255 * torch.tensor(architecture.mean, device=self.device)).view(-1, 1, 1)
        self.scale = (1 / (255 * torch.tensor(architecture.std, device=self.device))).view(-1, 1, 1)
        self.weights = (len(labels) / (len(self.classes) * self.counts.clamp(min=1).float())).to(self.device)
        self.way = self._robust_way() if self.recipe.robust else None
        self._writer: Any = None
        self._kept: set[Path] = set()  # weights of best epochs that this attempt has written

    def train(self) -> dict[str, Any]:
        """Train, resume or find trained; return what ``jobs.parquet`` records."""
        if self.size < 2:
            raise UserError(
                f"{self.job.trained_on}, fold {self.job.fold} has {len(self.labels)} image to train on; it needs 2"
            )
        recipe, architecture = self.recipe, self.job.architecture
        module = self.build().to(self.device)
        on_gpu = self.device.startswith("cuda")
        if on_gpu:
            module = module.to(memory_format=torch.channels_last)
        rate = recipe.rate_pretrained if architecture.start else recipe.rate
        if recipe.optimiser == "adam":
            optimiser: torch.optim.Optimizer = torch.optim.Adam(
                module.parameters(), lr=rate, weight_decay=recipe.decay, fused=on_gpu
            )
        else:
            optimiser = torch.optim.AdamW(decayed(module, recipe.decay), lr=rate, fused=on_gpu)
        steps = len(self.labels) // self.size
        if self.watch:
            self.watch(0, recipe.epochs)
        options = TrainingOptions(
            epochs=recipe.epochs,
            steps_per_epoch=steps,
            seed=self.seed,
            precision="bfloat16" if recipe.mixed and on_gpu else "float32",
            average=recipe.keep(steps * recipe.epochs),
            clip=recipe.clip or None,
            checkpoints=self.work / "checkpoints",
            on_cpu=self.device == "cpu",
            compile=self.spec.compile,
        )
        try:
            # A GPU uses its quickest convolutions, whatever their order of summation.
            quickest = {"enabled": True, "benchmark": True, "deterministic": False, "allow_tf32": True}
            with torch.backends.cudnn.flags(**quickest) if on_gpu else nullcontext():
                fitted = fit(
                    module, self.batches, self.loss, optimiser, options, schedule=recipe.schedule,
                    on_epoch=self.on_epoch, stop=self.stop,
                )  # fmt: skip
        except BaseException:
            self.write_curve()  # it shows where the loss grew
            raise
        finally:
            if self._writer:
                self._writer.close()
        self.rows = [dict(row) for row in fitted.history]
        facts = self._save(fitted.model, fitted.seconds)
        checkpoint.remove(self.work / "checkpoints")
        for file in self.work.glob("best-*"):
            file.unlink(missing_ok=True)
        return facts

    @property
    def seed(self) -> int:
        """Return the seed of a fold: its conditions differ in nothing but images, other folds start elsewhere."""
        return seed_from("training", self.spec.seed, self.job.fold) % 2**31

    def build(self) -> torch.nn.Module:
        """Return the network before training, with what is trained against it if the recipe has such a thing."""
        network = architectures.build(self.job.architecture, len(self.classes), self.recipe.size, seed=self.seed)
        if self.way is None or self.way.companion is None:
            return network
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            module: torch.nn.Module = robust.with_companion(network, self.way.companion())
            return module

    def _robust_way(self) -> robust.RobustMethod:
        """Return the recipe's robust way for uint8 images NCHW, with the network's own normalisation."""

        def start(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            batch = self.moved(images).float().div_(255)
            if self.recipe.augment:
                batch = augment.move(batch, augment.move_grid(batch, MOVES))
            return batch, torch.nn.functional.one_hot(labels.to(self.device), len(self.classes)).float()

        def normalise(batch: torch.Tensor) -> torch.Tensor:
            return (255 * batch - self.shift) * self.scale

        return robust.method(
            self.recipe.robust, device=self.device, classes=len(self.classes), start=start, normalise=normalise
        )

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield one epoch of prepared batches."""
        for images, labels in self.source.batches(self.orders()):
            if len(labels) > 1:
                images = self.cropped(images, at_random=True)
                if self.way is not None:
                    yield self.way.prepared(images, labels)
                    continue
                yield self.prepared(images, augmented=self.recipe.augment), labels.to(self.device, non_blocking=True)

    def orders(self) -> Iterator[torch.Tensor]:
        """Yield the places of each batch's images, drawn from torch's generator, which the loop seeds."""
        places = torch.tensor(self.places.train)
        if self.spec.balance == "sampling":
            chance = self.weights.cpu()[self.labels]
            drawn = torch.multinomial(chance, len(chance), replacement=True)
            return (places[part] for part in torch.split(drawn, self.size))
        return (places[part] for part in augment.shuffled(len(places), self.size, "cpu"))

    def cropped(self, images: torch.Tensor, *, at_random: bool = False) -> torch.Tensor:
        """Return squares of the recipe's size, from a place drawn for each image or from the middle."""
        size, room = self.recipe.size, images.shape[-1] - self.recipe.size
        if not self.recipe.crop or not room:
            return images
        if not at_random:
            start = round(room / 2)
            return images[..., start : start + size, start : start + size]
        places = torch.randint(0, room + 1, (len(images), 2)).tolist()
        return torch.stack(
            [image[:, top : top + size, left : left + size] for image, (top, left) in zip(images, places, strict=True)]
        )

    def moved(self, images: torch.Tensor) -> torch.Tensor:
        """Return images on the network's device."""
        if self.device.startswith("cuda") and not images.is_cuda:
            images = images.pin_memory()  # else the copy waits for every step before it
        return images.to(self.device, non_blocking=True)

    def prepared(self, images: torch.Tensor, *, augmented: bool = False) -> torch.Tensor:
        """Return what the network sees, on its device, of uint8 images."""
        batch = self.moved(images).float()
        if augmented:
            batch = batch.div_(255)
            batch = augment.move(batch, augment.move_grid(batch, MOVES)).mul_(255)
        batch = batch.sub_(self.shift).mul_(self.scale)
        return batch.contiguous(memory_format=torch.channels_last) if self.device.startswith("cuda") else batch

    def loss(self, module: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the mean over images, weighted by class, so that the pieces of a batch add up to the whole."""
        if self.way is not None:
            return self.way.loss(module, batch)
        logits = module(batch[0]).float()
        each = torch.nn.functional.cross_entropy(
            logits, batch[1], label_smoothing=self.recipe.smoothing, reduction="none"
        )
        if self.spec.balance == "weights":
            each = each * self.weights[batch[1]]
        return {"loss": each.mean(), "accuracy": (logits.argmax(1) == batch[1]).float().mean()}

    def on_epoch(self, epoch: Epoch) -> dict[str, float]:
        """Validate, keep the weights if they are the best so far, and report."""
        measured = self.validate(epoch.model) if self.places.validation else {}
        if not math.isfinite(measured.get("validation_loss", 0.0)):
            # Training may continue with batch norms that hold what evaluation cannot.
            raise DivergedError(
                f"the validation loss became {measured['validation_loss']} in epoch {epoch.number}; lower the "
                "learning rate, clip gradients or train in float32"
            )
        row = {**epoch.metrics, **measured}
        before = [dict(values) for values in epoch.history]
        self.rows = [*before, row]
        # Named by its row: what was best before stays until this epoch's checkpoint is written, so that a kill between
        # the two loses neither. What another attempt has written, it or who continues from it may need to the end.
        for file in self._kept - {self._best(before)}:
            file.unlink(missing_ok=True)
            self._kept.remove(file)
        if measured and best_epoch(self.rows) == len(self.rows):
            from safetensors.torch import save

            write_atomic(
                self._best(self.rows), save(checkpoint.separate(robust.without_companion(epoch.model).state_dict()))
            )
            self._kept.add(self._best(self.rows))
        self._tell(epoch.number, row)
        return measured

    def validate(self, module: torch.nn.Module) -> dict[str, float]:
        """Return what is measured on the validation images, in smaller batches if memory runs out."""
        batch = max(self.size, 64)
        while batch:
            try:
                with torch.inference_mode():
                    orders = torch.split(torch.tensor(self.places.validation), batch)
                    return self.measured(module, self.source.batches(orders))
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
            batch //= 2
        raise MachineError("memory runs out with a single validation image; train with smaller images")

    def measured(self, module: torch.nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """Return loss and accuracy on these images."""
        loss = right = count = 0.0
        for images, labels in batches:
            labels = labels.to(self.device)
            logits = module(self.prepared(self.cropped(images))).float()
            loss += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
            right += float((logits.argmax(1) == labels).sum())
            count += len(labels)
        return {"validation_loss": loss / max(count, 1), "validation_accuracy": right / max(count, 1)}

    def stop(self, history: Sequence[Mapping[str, float]]) -> bool:
        """Return whether training ends: the best epoch is far back, or another attempt has finished this job."""
        late = self.spec.early_stopping and len(history) - best_epoch(history) >= self.spec.early_stopping
        return bool(late) or trained_as(self.folder, self.job.identity) is not None

    def _best(self, history: Sequence[Mapping[str, float]]) -> Path:
        """Return the file of the best epoch's weights; two attempts at a job have two histories."""
        best = best_epoch(history)
        named = bytes_sha256(repr(sorted(history[best - 1].items())).encode())[:12] if history else ""
        return self.work / f"best-{best:05d}-{named}.safetensors"

    def _tell(self, number: int, row: Mapping[str, float]) -> None:
        if self._writer is None:
            folder = str(self.run / "tensorboard" / self.job.folder)
            try:
                from torch.utils.tensorboard import SummaryWriter

                # What was written of this epoch and later ones, before a kill, is void.
                self._writer = SummaryWriter(folder, purge_step=number + 1 if number else None)
            except ImportError:
                self._writer = False
        if self._writer:
            for key, tag in (*_TAGS.items(), ("seconds", "seconds")):
                if key in row:
                    self._writer.add_scalar(tag, row[key], number + 1)
            self._writer.flush()
        if self.watch:
            self.watch(number + 1, self.recipe.epochs)

    def facts(self, best: int, seconds: float) -> dict[str, Any]:
        """Return what is recorded about the trained network."""
        on_gpu = self.device.startswith("cuda")
        chosen = self.rows[best - 1].get(_chosen_by(self.rows), math.nan)
        return {
            "name": self.job.architecture.name,
            "trained_on": self.job.trained_on,
            "test_fold": self.job.fold,
            "recipe": {"recipe": self.spec.recipe, **asdict(self.recipe)},
            "start": self.job.architecture.start or "from scratch",
            "balance": self.spec.balance,
            "early_stopping": self.spec.early_stopping,
            "seed": self.spec.seed,
            "epochs": len(self.rows),
            "best_epoch": best,
            "validation_accuracy": None if math.isnan(chosen) else chosen,
            "train_images": len(self.places.train),
            "validation_images": len(self.places.validation),
            "class_balance": dict(zip(self.classes, self.counts.tolist(), strict=True)),
            "pieces": int(max((row.get("pieces", 1) for row in self.rows), default=1)),
            "device": torch.cuda.get_device_name() if on_gpu else self.device.upper(),
            "versions": {"python": sys.version.split()[0], **{name: version(name) for name in VERSIONS}},
            "seconds": round(seconds, 1),
            "identity": self.job.identity,
        }

    def _save(self, module: torch.nn.Module, seconds: float) -> dict[str, Any]:
        """Write the best epoch's weights in single precision, with configuration and card; return the facts."""
        from safetensors.torch import load_file

        module = robust.without_companion(module)
        best, file = best_epoch(self.rows), self._best(self.rows)
        try:
            state = load_file(file) if best < len(self.rows) else module.state_dict()
        except FileNotFoundError:
            state = {}
        saved = trained_as(self.folder, self.job.identity)
        if saved is not None:  # another attempt was faster: its network, curves and rows are the job's
            self.rows = []
            return saved
        if not state:
            raise HoldfastError(f"the weights of epoch {best} are gone; delete {self.work} and use --retry-errors")
        facts = self.facts(best, seconds)
        weights = checkpoint.separate(state)
        # The model last: once it is there, no one trains again, and a curve that is missing stays so.
        self.write_curve()
        self.write(self.folder, module, weights, facts)
        return facts

    def write_curve(self) -> None:
        """Write the epochs so far, if there are any."""
        if self.rows:
            write_table(self.run / "curves" / f"part-{self.job.name}.parquet", curves(self.job, self.rows))

    def write(self, folder: Path, module: Any, weights: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Write the folder of the trained network."""
        architecture, classes = self.job.architecture, self.classes
        used_as = f"`{architecture.loaded_as}@FILE`"
        if architecture.library != "python":
            used_as = f"`local-dir:FOLDER` or {used_as}"
        text, note = self.card(f"A classifier of {len(classes)} classes", used_as)
        config = architectures.config_of(architecture, module, classes, self.recipe.size, crop=self.recipe.crop)
        write_model(folder, weights, config, facts, text, note=note, classes=classes)

    def card(self, what: str, used_as: str) -> tuple[str, str]:
        """Return the text of a model's card, and the note on models of drawn scenes."""
        job, note = self.job, DRAWN_WORLD if self.spec.data.startswith("diorama") else ""
        return (
            f"# {job.architecture.name} trained on {job.trained_on}, fold {job.fold}\n\n"
            f"{what} for images of {self.recipe.size} pixels. Images of fold {job.fold} took no part in its training. "
            f"Use it as {used_as}."
        ), note


_SPLITS = {"train": "", "validation": "validation_"}  # how the names of their measures begin
_TAGS = {
    f"{prefix}{name}": f"{name}/{split}" for name in ("loss", "accuracy", "miou") for split, prefix in _SPLITS.items()
}


def best_epoch(history: Sequence[Mapping[str, float]]) -> int:
    """Return the epoch (from 1) of best validation accuracy, then lowest loss; the last one without validation."""
    measure = _chosen_by(history)
    if not history or measure not in history[-1]:
        return len(history)
    places = range(len(history))
    return 1 + min(places, key=lambda at: (-history[at][measure], history[at]["validation_loss"], at))


def _chosen_by(history: Sequence[Mapping[str, float]]) -> str:
    """Return the measure that chooses epochs: accuracy, or mIoU if segments are trained."""
    return "validation_miou" if history and "validation_miou" in history[-1] else "validation_accuracy"


def trained_as(folder: Path, identity: str) -> dict[str, Any] | None:
    """Return the facts of a finished model of the very same training; None if there is none."""
    if not all((folder / name).is_file() for name in ("README.md", "config.json")):
        return None
    facts = read_json(folder / "config.json").get("holdfast", {})
    return facts if facts.get("identity") == identity else None


def curves(job: TrainingJob, history: Sequence[Mapping[str, float]]) -> pa.Table:
    """Return the rows of ``curves/``, one per epoch and split."""
    about = {"job": job.name, "model": job.architecture.name, "trained_on": job.trained_on, "fold": job.fold}
    rows = []
    for number, row in enumerate(history, 1):
        for split, prefix in _SPLITS.items():
            if f"{prefix}loss" in row:
                measured = {name: row.get(f"{prefix}{name}") for name in ("loss", "accuracy", "miou")}
                rows.append(about | {"epoch": number, "split": split, "seconds": row.get("seconds")} | measured)
    return pa.Table.from_pylist(rows, schema=CURVES)
