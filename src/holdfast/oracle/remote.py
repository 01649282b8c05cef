"""``http://HOST:PORT[/PATH]#MODEL``: an oracle behind an address, for a model that its owner guards.

A request is an image and the class it should show; an answer is a verdict. Calls may cost money and a server need not
answer alike twice, so every answer is kept on disk, is asked for once, and counts against a budget.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import array_sha256, canonical_json, fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.protocols import Verdict
from holdfast.core.remote import SERVER_OPTIONS, PaidCalls, RemoteServer, TryAgainError, open_server, place_of
from holdfast.core.types import Image
from holdfast.oracle.classifier import places_of
from holdfast.oracle.loading import AcceptanceRule, Resources, take_rule

CACHE, BUDGET, SIDE, PARALLEL = "oracle-answers", 1000, 512, 4
LARGEST = 1 << 20  # bytes of an answer
_KINDS: Mapping[str, type] = {
    "budget": int, "cache": str, "side": int, "parallel": int, **SERVER_OPTIONS,
}  # fmt: skip


def load(name: Name, resources: Resources) -> RemoteOracle:
    """Load an oracle behind an address.

    Options: ``budget=1000`` (calls in all, over every run that shares the cache), ``cache=oracle-answers`` (a folder),
    ``side=512`` (pixels; larger images are sent smaller), ``parallel=4`` (calls at once), ``timeout=60``,
    ``retries=4``, ``backoff=1``, ``per_minute=0`` (no limit), ``key_env=HOLDFAST_API_KEY`` (the environment variable
    that holds the key), and ``min_score`` and ``min_margin`` for servers that answer with scores.
    """
    rule, rest = take_rule(name)
    if rule.space != "dataset":
        raise UserError(f"{name.scheme}: knows the dataset's classes only; leave out space={rule.space}")
    options = checked(replace(name, options=rest), _KINDS, elsewhere=("min_score", "min_margin", "name"))
    for option, least in (("budget", 0), ("side", 8), ("parallel", 1)):
        if options.get(option, least) < least:
            raise UserError(f"{name.scheme}: option {option}={options[option]} should be {least} or more")
    server, model = open_server(name, options, kind="", endpoint="/judge", largest=LARGEST)
    book = AnswerBook(Path(options.pop("cache", CACHE)), options.pop("budget", BUDGET))
    return RemoteOracle(model, server, book, rule, resources.classes, **options)


class AnswerBook(PaidCalls):
    """Answers that were paid for, a line each in ``answers.jsonl``; ``calls.jsonl`` has a line for every call."""

    def __init__(self, folder: Path, budget: int) -> None:
        super().__init__(folder, budget)
        self._answers: dict[str, dict[str, Any]] = {}
        for line in self.lines("answers.jsonl"):
            try:
                kept = json.loads(line)
                self._answers[str(kept["question"])] = dict(kept["answer"])
            except (ValueError, KeyError, TypeError):
                continue  # a line that a kill cut off; its question is asked again

    def find(self, question: str) -> dict[str, Any] | None:
        """Return the answer to a question, None if it was never answered."""
        return self._answers.get(question)

    def keep(self, question: str, answer: dict[str, Any]) -> None:
        """Store an answer."""
        with self.lock:
            self._answers[question] = answer
            self.write("answers.jsonl", {"question": question, "answer": answer})


class RemoteOracle:
    """Asks a server about each image once and keeps the answers; a call that fails for good stops the run."""

    def __init__(
        self,
        model: str,
        server: RemoteServer,
        book: AnswerBook,
        rule: AcceptanceRule,
        classes: Sequence[str],
        *,
        side: int = SIDE,
        parallel: int = PARALLEL,
    ) -> None:
        place = place_of(server.url)
        self.name = rule.shown(f"http:{place}#{model}")
        self.classes = tuple(classes)
        judged_by = [place, model, rule.min_score, rule.min_margin, side, list(self.classes)]
        self.fingerprint = fingerprint(["http", *judged_by])
        self._model, self._server, self._book, self._rule = model, server, book, rule
        self._side, self._parallel = side, parallel

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return a verdict per RGB image of any size; equal images are asked about once."""
        places_of(labels, self.classes)
        questions = [self._question(image, label) for image, label in zip(images, labels, strict=True)]
        asked = dict(zip(questions, zip(images, labels, strict=True), strict=True))
        missing = {question: pair for question, pair in asked.items() if self._book.find(question) is None}
        if missing:
            with ThreadPoolExecutor(min(self._parallel, len(missing))) as threads:
                list(threads.map(lambda item: self._ask(item[0], *item[1]), missing.items()))
        return [
            self._verdict(self._book.find(question) or {}, label)
            for question, label in zip(questions, labels, strict=True)
        ]

    def _question(self, image: Image, label: str) -> str:
        asked = [place_of(self._server.url), self._model, self._side, label, list(self.classes)]
        return fingerprint(["oracle", *asked, array_sha256(image)])[:32]

    def _ask(self, question: str, image: Image, label: str) -> None:
        picture = base64.b64encode(_png(image, self._side)).decode()
        body = {"model": self._model, "class": label, "classes": list(self.classes), "image": picture}
        self._book.charge({"question": question})
        try:
            answer = self._server.post(self._read, content=canonical_json(body))
        except SampleError as error:
            raise UserError(
                f"the oracle {self.name} gave no verdict: {error}. Answers so far are kept in {self._book.folder}; run "
                "the same command again"
            ) from error
        self._book.keep(question, answer)

    def _read(self, answer: Any) -> dict[str, Any]:
        """Return an answer of either form, checked; anything else may be passing trouble."""
        try:
            if "scores" in answer:
                scores = {str(name): float(value) for name, value in answer["scores"].items()}
                if set(scores) != set(self.classes) or not all(0 <= value <= 1 for value in scores.values()):
                    raise TryAgainError("scores that are not a number from 0 to 1 for every class")
                return {"scores": scores}
            accepted, score = answer["accepted"], float(answer.get("score", 1.0 if answer["accepted"] else 0.0))
            if not isinstance(accepted, bool) or not 0 <= score <= 1:
                raise TryAgainError("a verdict whose accepted is not a truth value, or whose score is not from 0 to 1")
            saw = str(answer.get("saw", ""))[:200]
            return {"accepted": accepted, "score": score, "saw": saw, "reason": str(answer.get("reason", ""))[:200]}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise TryAgainError("an answer that is not a verdict in JSON") from None

    def _verdict(self, answer: dict[str, Any], label: str) -> Verdict:
        if "scores" not in answer:
            score, accepted = float(answer["score"]), bool(answer["accepted"])
            saw = label if accepted else str(answer["saw"]) if answer["saw"] in self.classes else ""
            return Verdict(accepted, score, 2 * score - 1, saw, "" if accepted else answer["reason"] or "it rejects it")
        scores: dict[str, float] = answer["scores"]
        best = max(self.classes, key=lambda name: scores[name])
        score = scores[label]
        margin = score - max((scores[name] for name in self.classes if name != label), default=0.0)
        reason = ""
        if best != label:
            reason = f"it looks more like {best}"
        elif score < self._rule.min_score:
            reason = f"score {score:.2f} is below {self._rule.min_score:g}"
        elif margin < self._rule.min_margin:
            reason = f"margin {margin:.2f} is below {self._rule.min_margin:g}"
        return Verdict(not reason, score, margin, best, reason)


def _png(image: Image, side: int) -> bytes:
    """Return the image as PNG, no side longer than this."""
    height, width = image.shape[:2]
    longest = max(height, width)
    if longest > side:
        smaller = (max(1, round(width * side / longest)), max(1, round(height * side / longest)))
        image = np.asarray(cv2.resize(image, smaller, interpolation=cv2.INTER_AREA), np.uint8)
    fine, data = cv2.imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    if not fine:
        raise SampleError("the image cannot be written as PNG")
    return bytes(data.tobytes())
