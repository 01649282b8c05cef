"""The record of machine, versions and command beside a result."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from typing import Any

from holdfast.engine import core_count

PACKAGES = (
    "holdfast", "numpy", "opencv-python-headless", "pillow", "pyarrow", "pandas", "duckdb", "scipy", "torch",
    "torchvision", "timm", "transformers", "accelerate", "diffusers", "open-clip-torch", "segmentation-models-pytorch",
    "onnxruntime", "safetensors", "tensorboard", "pycocotools", "statsmodels", "torchmetrics", "vl-convert-python",
)  # fmt: skip


@functools.cache
def version(package: str) -> str | None:
    """Return the installed version of a package without importing it; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, Any]:
    """Return the machine, the versions and the command, for ``environment.json``."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),  # noqa: PTH119
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": core_count(),
        "gpu": gpu_name(),
        "packages": {name: installed for name in PACKAGES if (installed := version(name))},
    }


def gpu_name() -> str | None:
    """Return the name of the first GPU that torch sees; None without one."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
