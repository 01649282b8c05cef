"""``holdfast study telltale``: can a network distinguish original, generated and random backgrounds?"""

from __future__ import annotations

from pathlib import Path

from holdfast.api.verb import verb
from holdfast.pipeline.jobs.progress import Progress, printed
from holdfast.pipeline.specs import TelltaleSpec
from holdfast.results import Results


@verb(TelltaleSpec, temporary=True)
def study_telltale(spec: TelltaleSpec, *, out: str | Path, progress: Progress = printed) -> Results:
    """Train networks to distinguish original, generated and random backgrounds; ``report`` in the run is the page."""
    from holdfast.pipeline.telltale import telltale
    from holdfast.reports.trained.detection import build_detection
    from holdfast.store import workplace

    with workplace(out) as (folder, _):
        run, _ = telltale(spec, folder, progress=progress)
        build_detection([run], folder / "report")
    return Results(run)
