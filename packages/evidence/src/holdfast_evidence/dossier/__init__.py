"""Evidence for auditors: a document about runs, its decision against a declared protocol, maps, series of runs."""

from holdfast.pipeline.declaration import declare
from holdfast_evidence.dossier.assembly import dossier
from holdfast_evidence.dossier.series import watch

__all__ = ["declare", "dossier", "watch"]
