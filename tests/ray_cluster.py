"""A Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# Before Ray is imported anywhere: nothing is reported home, its C++ side writes to no terminal, and no one else may
# talk to clusters that listen for as long as tests take.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def ray_cluster(nodes: int = 2) -> Iterator[Any]:
    """Start a head without cores and ``nodes`` nodes of one core; pass ``cluster.address`` to ``open_executor``.

    Everything is removed at the end. Ray chooses the ports.
    """
    import ray
    from ray.cluster_utils import Cluster

    # Ray's own default folder exists only on machines where Ray ran with its defaults before, and Cluster writes its
    # address there. The path is short because those of Ray's sockets, below it, may have 107 characters at most.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    small = {"object_store_memory": 80 << 20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        try:
            cluster = Cluster(True, head_node_args={"num_cpus": 0} | small)
            try:
                for _ in range(nodes):
                    cluster.add_node(num_cpus=1, wait=False, **small)
                cluster.wait_for_nodes()
                yield cluster
            finally:
                ray.shutdown()
                cluster.shutdown()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
