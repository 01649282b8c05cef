"""A server that judges images, well or badly: the model's name says how. Prints its port, then serves."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

SEEN: dict = {"requests": 0, "keys": [], "sides": []}
TRIES: Counter = Counter()
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, SEEN)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        image = cv2.imdecode(np.frombuffer(base64.b64decode(asked["image"]), np.uint8), cv2.IMREAD_COLOR)
        with LOCK:
            SEEN["requests"] += 1
            SEEN["keys"].append(self.headers.get("Authorization", ""))
            SEEN["sides"].append(max(image.shape))
            TRIES[asked["image"]] += 1
            attempt = TRIES[asked["image"]]
        bright = float(image.mean() / 255)
        model = asked["model"]
        if model == "busy" and attempt < 3:
            self.reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.01"})
        elif model == "refuses":
            self.reply(400, {"error": {"message": "this image is not allowed"}})
        elif model == "words":
            self.reply(200, {"verdict": "yes, I think so"})
        elif model == "large":
            self.reply(200, {"accepted": True, "reason": "x" * (2 << 20)})
        elif model == "scores":
            classes = asked["classes"]
            rest = (1 - bright) / max(1, len(classes) - 1)
            self.reply(200, {"scores": {name: bright if name == classes[0] else rest for name in classes}})
        else:
            self.reply(200, {"accepted": bright > 0.4, "score": bright, "reason": "" if bright > 0.4 else "too dark"})

    def reply(self, code: int, answer: dict, headers: dict | None = None) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has hung up
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.exit(server.serve_forever())
