"""Settings of hypothesis for the statistics: examples may take their time on a machine that is busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
