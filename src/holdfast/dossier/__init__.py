"""Evidence for auditors: a document about runs, its decision against a declared protocol, maps, series of runs."""

from holdfast.dossier.assembly import dossier
from holdfast.dossier.series import watch
from holdfast.pipeline.declaration import declare

__all__ = ["declare", "dossier", "watch"]
