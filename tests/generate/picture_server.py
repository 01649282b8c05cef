"""A server that speaks the images dialect, well or badly: the model's name says how. Prints its port, then serves."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import threading
from collections import Counter
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np

SEEN: dict = {"requests": 0, "keys": [], "bodies": [], "paths": [], "alpha": []}
TRIES: Counter = Counter()
LOCK = threading.Lock()


def picture(text: str, side: int) -> str:
    """An image of one colour that follows from the prompt and from how often it was asked for."""
    colour = np.frombuffer(hashlib.sha256(text.encode()).digest()[:3], np.uint8)
    image = np.zeros((side, side, 3), np.uint8) + colour
    image[: side // 2] ^= 255
    return base64.b64encode(cv2.imencode(".png", image)[1].tobytes()).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(200, SEEN)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        asked = self.form(raw) if "multipart" in self.headers["Content-Type"] else json.loads(raw)
        with LOCK:
            SEEN["requests"] += 1
            SEEN["keys"].append(self.headers.get("Authorization", ""))
            SEEN["bodies"].append(asked)
            SEEN["paths"].append(self.path)
            TRIES[asked["prompt"]] += 1
            attempt = TRIES[asked["prompt"]]
        model = asked["model"]
        if model == "busy" and attempt < 3:
            self.reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.01"})
        elif model == "refuses":
            self.reply(400, {"error": {"message": f"not allowed, {self.headers.get('Authorization', '')}"}})
        elif model == "locked":
            self.reply(401, {"error": {"message": "no such key"}})
        elif model == "words":
            self.reply(200, {"data": [{"url": "http://elsewhere/picture.png"}]})
        elif model == "broken":
            self.reply(200, {"data": [{"b64_json": base64.b64encode(b"no picture").decode()}]})
        else:
            side = int(asked["size"].partition("x")[0])
            answer = {"created": 1, "data": [{"b64_json": picture(f"{asked['prompt']}{attempt}", side),
                      "revised_prompt": "a nicer " + asked["prompt"]}], "usage": {"total_tokens": 7}}  # fmt: skip
            self.reply(200, answer)

    def form(self, raw: bytes) -> dict:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        fields: dict = {}
        for part in BytesParser(policy=HTTP).parsebytes(head + raw).iter_parts():
            name, data = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            if part.get_filename():
                image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
                fields[name] = list(image.shape)
                if image.shape[2] == 4:
                    SEEN["alpha"].append(float((image[..., 3] > 0).mean()))
            else:
                fields[name] = data.decode()
        return fields

    def reply(self, code: int, answer: dict, headers: dict | None = None) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.exit(server.serve_forever())
