"""Functions of ``import holdfast`` that this package adds."""

from __future__ import annotations

from holdfast.pipeline.specs import RerunOptions
from holdfast.verbs import hinted
from holdfast_evidence.board.verify import verify as _verify
from holdfast_evidence.bundle import bundle as _bundle

bundle = hinted(_bundle)
verify = hinted(_verify, RerunOptions)
