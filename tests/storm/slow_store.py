"""A store that speaks S3 and answers late: moto's server, with a pause before each answer, and now and then a 503.

``python slow_store.py PORT SEED``
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

SLOWEST_S = 0.15
BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def main() -> None:
    port, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    store = DomainDispatcherApplication(create_backend_app)

    def slow(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(draw.random() ** 3 * SLOWEST_S)
        if draw.random() < 0.02:
            start("503 Slow Down", [("content-type", "application/xml")])
            return [BUSY]
        return store(environ, start)

    run_simple("127.0.0.1", port, slow, threaded=True)


if __name__ == "__main__":
    main()
