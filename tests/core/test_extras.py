"""What the distribution brings by itself is enough for the core verbs, and errors name the extra of other packages."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast.core.distribution import DISTRIBUTION
from holdfast.core.errors import EXTRAS, missing_extra
from shapes import make_photos

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]

BROUGHT = {"rich": "typer", "markupsafe": "jinja2", "huggingface_hub": "timm"}
"""Imported packages that a declared one is certain to bring."""
IMPLIED = {
    "eagerpy": "foolbox",
    "fsspec": "s3fs",
    "upath": "universal-pathlib",
    "triton": "torch",  # for GPUs; walks look whether it is there
}
DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "vl_convert": "vl-convert-python",
    "open_clip": "open-clip-torch",
    "sklearn": "scikit-learn",
    "mlflow": "mlflow-skinny",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    **BROUGHT,
    **IMPLIED,
}

BLOCKER = """
import sys

class Filtered:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)

BLOCKED = {blocked!r}
sys.meta_path[:] = [Filtered(finder) for finder in sys.meta_path]
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extra: str | None) -> set[str]:
    """Distributions of the core, or of an extra with the extras it includes."""
    lines = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    names = set()
    for requirement in map(Requirement, lines):
        if requirement.name == DISTRIBUTION:
            names |= set().union(*map(declared, requirement.extras))
        else:
            names.add(canonical(requirement.name))
    return names


def imported_packages() -> dict[str, set[str]]:
    """Third-party import names of the package, with the files that import them."""
    names: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "holdfast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                modules = [node.module]
            for module in modules:
                top = module.partition(".")[0]
                if top != "holdfast" and top not in sys.stdlib_module_names:
                    names.setdefault(top, set()).add(path.name)
    return names


def core_closure() -> set[str]:
    """All distributions that the core's dependencies bring, as installed here."""
    closure: set[str] = set()
    waiting = set(declared(None))
    while waiting:
        name = waiting.pop()
        closure.add(name)
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting |= {canonical(requirement.name)} - closure
    return closure


@pytest.fixture(scope="module")
def core_only(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment for commands in which only Holdfast and what its core brings can be imported."""
    closure = core_closure() | {DISTRIBUTION, "holdfast", "pip", "setuptools"}
    owners = metadata.packages_distributions()
    blocked = {top for top, names in owners.items() if not closure & set(map(canonical, names))}
    blocked |= {path.name for path in ROOT.glob("packages/*/src/*")}
    assert {"diffusers", "fastapi", "open_clip", "ray", "transformers"} <= blocked
    assert not {"torch", "timm", "pandas", "numpy"} & blocked
    folder = tmp_path_factory.mktemp("core_only")
    (folder / "sitecustomize.py").write_text(BLOCKER.replace("{blocked!r}", repr(blocked)))
    paths = [str(folder), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def holdfast(environment: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_core_is_small() -> None:
    assert len(PROJECT["dependencies"]) <= 21


def test_every_imported_package_is_declared() -> None:
    for module, files in imported_packages().items():
        distribution = canonical(DISTRIBUTIONS.get(module, module))
        extra = EXTRAS.get(module)
        if module == "pytest" and files == {"pytest_plugin.py"}:  # which nothing but pytest imports
            continue
        if module in IMPLIED:
            assert distribution in declared(extra), (module, extra)
            continue
        assert distribution in declared(extra), f"{module} ({', '.join(sorted(files))}) is declared nowhere"


def test_every_extra_is_part_of_all() -> None:
    own = set(PROJECT["optional-dependencies"]) - {"all", "test"}
    assert set(EXTRAS.values()) <= own
    assert declared("all") == set().union(*map(declared, own))


def test_check_runs_with_the_core_alone(core_only: dict[str, str], tmp_path: Path) -> None:
    photos = make_photos(tmp_path / "photos")
    (tmp_path / "toy.py").write_text(
        "import numpy as np\n"
        "def model(images):\n    return np.full((len(images), 3), 1 / 3, np.float32)\n"
        "model.labels = ('cross', 'disc', 'square')\n"
    )
    environment = core_only | {"PYTHONPATH": f"{core_only['PYTHONPATH']}{os.pathsep}{tmp_path}"}
    run = ["python:toy:model", photos / "images", "--masks", photos / "masks", "--out", tmp_path / "out"]
    done = holdfast(environment, "check", *run)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out").rglob("index.html"))


NEEDING_MORE = [
    (("people", "serve", "--data", "{out}"), "people"),
    (("perturb", "diorama:test?n=2", "--models", "embedded:resnet_rho95", "--generator", "embedded:vqgan",
      "--oracle", "clip:embedded", "--out", "{out}"), "generate|hf|walk"),
    (("eval", "diorama:test?n=2", "--models", "embedded:resnet_rho95", "--scenarios", "fgsm", "--out", "{out}"),
     "attack"),
    (("train", "diorama:train?n=24", "--architectures", "embedded:resnet_rho95", "--scenarios", "original",
      "--folds", "1", "--epochs", "1", "--size", "32", "--out", "{out}"), "train"),
    (("eval", "diorama:test?n=2", "--models", "hf:anyone/anything", "--out", "{out}"), "hf"),
    (("eval", "diorama:test?n=2", "--models", "embedded:resnet_rho95", "--engine", "ray", "--out", "{out}"),
     "ray"),
    (("eval", "diorama:test?n=2", "--models", "embedded:resnet_rho95", "--scenarios", "nrtk:haze", "--out",
      "{out}"), "nrtk"),
    (("data", "check", "{tmp}/scans"), "dicom"),
    (("eval", "s3://nowhere/photos", "--models", "embedded:resnet_rho95", "--out", "{out}"), "s3"),
]  # fmt: skip
"""Commands, and the extras that may be named if the core alone is installed."""

CALLS = """
import contextlib, io, json, multiprocessing.util, os, sys

import holdfast
from holdfast.cli import main as command_line

main, command_line.end_process = command_line.main, sys.exit  # how a failed command ends, whatever its threads do
multiprocessing.util._exit_function = lambda: None
ends = []
for words in json.load(sys.stdin):
    sys.argv, err = ["holdfast", *words], io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main()
            ends.append((0, err.getvalue()))
        except SystemExit as stop:
            ends.append((stop.code, err.getvalue()))
try:
    holdfast.perturb("diorama:test?n=2", models=["embedded:resnet_rho95"], generator="embedded:vqgan",
                     oracle="clip:embedded", out=sys.argv[-1] + "-python")
except holdfast.UserError as error:
    ends.append(("UserError", str(error)))
json.dump(ends, sys.stdout)
"""


@pytest.fixture(scope="module")
def ends(core_only: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, str]]:
    """How every command ends, and at last a call from Python: in one process, which imports torch once."""
    folder = tmp_path_factory.mktemp("needing_more")
    for label in ("a", "b"):
        (folder / "scans" / label).mkdir(parents=True)
        (folder / "scans" / label / "0.dcm").write_bytes(bytes(128) + b"DICM")
    commands = [
        [word.format(tmp=folder, out=folder / f"of{place}") for word in words]
        for place, (words, _) in enumerate(NEEDING_MORE)
    ]
    done = subprocess.run(
        [sys.executable, "-c", CALLS], env=core_only, input=json.dumps(commands), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("place", range(len(NEEDING_MORE)), ids=[" ".join(words[:2]) for words, _ in NEEDING_MORE])
def test_a_missing_package_is_named_with_its_extra(ends: list[tuple[object, str]], place: int) -> None:
    code, said = ends[place]
    assert code in (1, 2), said
    assert re.search(rf"pip install 'holdfast-vision\[({NEEDING_MORE[place][1]})\]'", said), said
    assert "Traceback" not in said


def test_a_python_call_names_the_extra_too(ends: list[tuple[object, str]]) -> None:
    kind, said = ends[-1]
    assert kind == "UserError" and re.search(r"pip install 'holdfast-vision\[(generate|hf|walk)\]'", said), said


def test_a_foreign_missing_module_is_not_ours() -> None:
    assert missing_extra(ModuleNotFoundError("no", name="some_plugin.part")) == ""
