"""A Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Before Ray is imported anywhere: nothing is reported home, its C++ side writes to no terminal, and nobody else may
# talk to clusters that listen for as long as tests take.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def ray_cluster(nodes: int = 2) -> Iterator[Any]:
    """A head without cores for work and ``nodes`` with one each; ``cluster.address`` is for ``open_executor``.

    Everything is gone afterwards. Its sockets need a path shorter than pytest's folders; ports are chosen by Ray.
    """
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-")
    small = {"object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(True, head_node_args={"num_cpus": 0, "temp_dir": folder} | small)
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, wait=False, **small)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
