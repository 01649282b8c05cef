"""Exit with 0 if the container is healthy: its server answers, or it runs another command than ``serve``."""

import sys
import urllib.request
from pathlib import Path

words = Path("/proc/1/cmdline").read_bytes().split(b"\0")
if b"serve" not in words:
    sys.exit(0)
port = words[words.index(b"--port") + 1].decode() if b"--port" in words else "8420"
with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=4) as answer:
    sys.exit(answer.status != 200)
