"""``meta.toml``: what only the submitter knows of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.board.entry import Link, Name, Parameters, Speed, Words, in_words
from holdfast.core.errors import UserError
from holdfast.core.toml import read_toml


class Meta(BaseModel):
    """A model in its submitter's words. Numbers that can be counted from the model need not be given."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    title: Name | None = None
    parameters: Parameters | None = None
    input_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    paper: Link = ""
    code: Link = ""
    note: Words = ""
    speed: Speed | None = None


def read_meta(path: str | Path | None, models: list[str]) -> dict[str, Meta]:
    """Model → what the file says of it: ``[models."NAME"]`` where there are several, else the file itself.

    What stands above the tables goes for all of them; a title is one model's.
    """
    content = read_toml(path, "--meta") if path is not None else {}
    tables = content.pop("models", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UserError('--meta has [models."NAME"] tables, and models is something else there')
    strange = sorted(set(tables) - set(models))
    if strange:
        raise UserError(f"--meta speaks of {strange[0]!r}; the models of this run are {', '.join(models[:8])}")
    if "title" in content and len(models) > 1:
        raise UserError('--meta has one title for several models; give each its own below [models."NAME"]')
    return {model: _meta({**content, **tables.get(model, {})}) for model in models}


def _meta(content: dict[str, Any]) -> Meta:
    try:
        return Meta.model_validate(content)
    except ValidationError as error:
        raise UserError(f"--meta, {in_words(error)}") from None
