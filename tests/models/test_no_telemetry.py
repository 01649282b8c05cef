"""Models leave nothing in the home folder: libraries that would keep records for their makers are told not to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NETWORK = Path(__file__).parents[1] / "storm" / "corpus" / "network" / "small.onnx"
CODE = """
import sys
import numpy as np
from holdfast.models import load_classifier

for name in sys.argv[1:]:
    print(load_classifier(name + "?size=16").predict([np.zeros((16, 16, 3), np.uint8)]).shape)
"""


def test_runtimes_write_nothing_into_the_home_folder(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-c", CODE, f"onnx:{NETWORK}", f"openvino:{NETWORK}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment | {"HOME": str(home)})
    assert done.stdout.splitlines() == ["(1, 3)", "(1, 3)"], done.stderr
    assert [str(path) for path in home.rglob("*") if path.is_file()] == []


def test_the_hubs_libraries_and_ray_report_nothing() -> None:
    code = (
        "import holdfast\nfrom holdfast.engine.ray import RayExecutor\nRayExecutor(1, 1)\n"
        "from huggingface_hub import constants\nfrom ray._common.usage import usage_lib\n"
        "print(constants.HF_HUB_DISABLE_TELEMETRY, usage_lib.usage_stats_enabled())"
    )
    told = ("TELEMETRY", "DO_NOT_TRACK", "RAY_", "HF_HUB_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if not any(word in name for word in told)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["True", "False"], done.stderr
