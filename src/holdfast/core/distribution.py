"""The distribution that Holdfast is installed from. Its name is not that of the package: ``holdfast`` is not ours."""

from __future__ import annotations

import functools
from importlib.metadata import Distribution, PackageNotFoundError, distribution

DISTRIBUTION = "holdfast-vision"
_FORMER = "holdfast"  # of checkouts that were installed before the distribution was renamed


@functools.cache
def installed() -> Distribution | None:
    """Return the metadata of the installed distribution; None in a source tree that is not installed."""
    for name in (DISTRIBUTION, _FORMER):
        try:
            return distribution(name)
        except PackageNotFoundError:
            continue
    return None


@functools.cache
def installed_version() -> str:
    """Return Holdfast's version; ``0+unknown`` in a source tree that is not installed."""
    package = installed()
    return package.version if package else "0+unknown"


def pip_install(extra: str) -> str:
    """Return the command that installs an extra, and the same in a checkout."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: '.[{extra}]')"
