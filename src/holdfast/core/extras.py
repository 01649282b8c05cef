"""Which extra of Holdfast brings which package, for the error that misses one."""

from __future__ import annotations

EXTRAS = {
    "accelerate": "train",
    "alembic": "people",
    "captum": "explain",
    "diffusers": "generate",
    "eagerpy": "attack",
    "fastapi": "people",
    "foolbox": "attack",
    "fsspec": "s3",
    "h11": "people",
    "open_clip": "walk",
    "psycopg": "people",
    "pydantic": "exchange",
    "ray": "ray",
    "s3fs": "s3",
    "segmentation_models_pytorch": "train",
    "sklearn": "walk",
    "sqlalchemy": "people",
    "starlette": "people",
    "tensorboard": "train",
    "torchmetrics": "explain",
    "transformers": "hf",
    "upath": "s3",
    "uvicorn": "people",
}
"""Import name → extra. Packages that ``pip install holdfast`` brings are not listed."""


def missing_extra(error: BaseException) -> str:
    """Return the sentence that names the extra to install, or "" where no package of an extra is missing."""
    module = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if module not in EXTRAS:
        return ""
    return (
        f"the package {module} is not installed: pip install 'holdfast[{EXTRAS[module]}]' brings it "
        "('holdfast[all]' brings everything)"
    )
