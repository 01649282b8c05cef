"""Find out once whether the model hub can be reached."""

from __future__ import annotations

import os
import socket
import urllib.parse
import urllib.request

SECONDS = 3.0


def mind_the_hub() -> None:
    """Switch the hub's library to offline mode if nothing answers at the hub's address.

    Left to itself it tries every file five times, with longer and longer pauses, which is a minute of silence for
    somebody behind a firewall. A proxy or the user's own ``HF_HUB_OFFLINE`` is left alone.
    """
    from huggingface_hub import constants

    if "HF_HUB_OFFLINE" in os.environ or urllib.request.getproxies():
        return
    address = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=SECONDS).close()
    except OSError:
        constants.HF_HUB_OFFLINE = True
    else:
        constants.HF_HUB_OFFLINE = False
