"""Evidence for auditors: one document about runs, its decision against a declared protocol, and maps to standards."""

from holdfast.dossier.assembly import dossier
from holdfast.pipeline.declaration import declare

__all__ = ["declare", "dossier"]
