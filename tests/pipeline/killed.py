"""Trainings that are killed in the middle, as a process of their own, and what they leave."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

from safetensors.torch import load_file


def kill_in_training(arguments: list[str], checkpoints: Path, epoch: int) -> Path:
    """Run ``holdfast`` and send SIGKILL once that epoch's checkpoint, or a later one, is there; returns the newest."""
    with subprocess.Popen([sys.executable, "-m", "holdfast.cli.main", *arguments]) as process:
        while not any(int(one.name[-5:]) >= epoch for one in checkpoints.glob("epoch-*")):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    return max(checkpoints.glob("epoch-*"))


def weight_hashes(folder: Path) -> dict[str, str]:
    """A hash of each model's tensors; the order of a file's metadata is not its own."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        state = load_file(path)
        content = b"".join(name.encode() + state[name].numpy().tobytes() for name in sorted(state))
        found[path.relative_to(folder).as_posix()] = hashlib.sha256(content).hexdigest()
    return found
