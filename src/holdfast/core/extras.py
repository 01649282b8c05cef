"""Which extra of Holdfast brings which package, for the error that misses one."""

from __future__ import annotations

from holdfast.core.errors import UserError

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


def missing_extra(error: ImportError) -> UserError | None:
    """Return the error that names the extra to install, or None where the missing module is not one of ours."""
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    return UserError(
        f"the package {module} is not installed: pip install 'holdfast[{EXTRAS[module]}]' brings it "
        "('holdfast[all]' brings everything)"
    )
