"""A server that speaks chat completions, well or badly: the model's name says how. Prints its port, then serves.

``GET /seen`` tells how many requests came, how many were under way at once, and what they held. Run as a process.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

LOCK = threading.Lock()
SEEN: dict = {"requests": 0, "most": 0, "keys": [], "bodies": [], "times": [], "elsewhere": 0}
NOW = 0
TRIES: Counter = Counter()


def options_of(question: str) -> list[str]:
    return [one.strip(" .") for one in re.split(r"list[^:]*:", question)[-1].split(",")]


def seen_class(url: str) -> str:
    """The class of a drawn shape by its colour, which tells red from blue only if the channels arrived in order."""
    data = np.frombuffer(base64.b64decode(url.partition(",")[2]), np.uint8)
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1].astype(int)
    strong = [((image[..., c] > 150) & (np.delete(image, c, 2).max(2) < 110)).mean() for c in (2, 0, 1)]
    return ("cross", "disc", "square")[int(np.argmax(strong))]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            SEEN["elsewhere"] += 1
        self.reply(200, json.dumps(SEEN).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        with LOCK:
            SEEN["requests"] += 1
            SEEN["keys"].append(self.headers.get("Authorization", ""))
            SEEN["times"].append(time.monotonic())
            SEEN["path"] = self.path
            if self.path.startswith("/elsewhere"):
                SEEN["elsewhere"] += 1
            TRIES[raw] += 1
            attempt = TRIES[raw]
        try:
            self.serve(json.loads(raw), attempt)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def think(self, seconds: float) -> None:
        """Takes its time, and counts how many do so at once; it is over before the client can hear of it."""
        global NOW
        with LOCK:
            NOW += 1
            SEEN["most"] = max(SEEN["most"], NOW)
        time.sleep(seconds)
        with LOCK:
            NOW -= 1

    def serve(self, request: dict, attempt: int) -> None:
        model, content = request["model"], request["messages"][0]["content"]
        url, question = content[0]["image_url"]["url"], content[1]["text"]
        with LOCK:
            SEEN["bodies"] = [{**request, "messages": [url[:40], question]}]
        options = options_of(question)
        said: str | None = options[0]
        extra: dict = {}
        if model == "sees":
            said = seen_class(url)
        elif model == "slow":
            self.think(0.1)
        elif model == "crawls":
            self.think(0.2)
        elif model.startswith("busy") and attempt == 1:
            return self.reply(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "1"})
        elif model == "flaky" and attempt <= 2:
            return self.reply(500 + attempt, b"<html>oops</html>")
        elif model == "down":
            return self.reply(503, b"")
        elif model == "hangs" or (model == "hangs-once" and attempt == 1):
            time.sleep(30)
        elif model == "drips":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
            return None
        elif model == "drops":
            self.close_connection = True
            return None
        elif model == "broken":
            return self.reply(200, b'{"choices": [{"message": {"cont')
        elif model == "strange":
            return self.reply(200, b'{"choices": "none"}')
        elif model == "refuses":
            said = "I'm sorry, but I cannot help with identifying objects in this image."
        elif model == "refuses-by-field":
            said, extra = None, {"refusal": "This goes against what is allowed here."}
        elif model == "empty":
            said = ""
        elif model == "null":
            said = None
        elif model == "chatty":
            said = f"The main object in this image is clearly the {options[-1]}!"
        elif model == "huge":
            said = "x" * (6 << 20)
        elif model == "script":
            said = "<script>alert('answers are not code')</script>"
        elif model == "too-large":
            return self.reply(413, b'{"error": {"message": "the image is too large"}}')
        elif model == "wants-key":
            given = self.headers.get("Authorization", "")
            return self.reply(401, json.dumps({"error": {"message": f"Incorrect API key provided: {given}"}}).encode())
        elif model == "long-complaint":
            said = f"{'no ' * 62}{self.headers.get('Authorization', '')}"
            return self.reply(400, json.dumps({"error": {"message": said}}).encode())
        elif model == "repeats-key":
            said = f"{said} {self.headers.get('Authorization', '')}"
        elif model == "redirects":
            return self.reply(307, b"", {"Location": f"http://localhost:{self.server.server_address[1]}/elsewhere"})
        body = {"choices": [{"message": {"role": "assistant", "content": said, **extra}, "finish_reason": "stop"}]}
        self.reply(200, json.dumps(body).encode())
        return None

    def reply(self, status: int, body: bytes, headers: dict | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
