"""``make load``: many people vote at once, and the server is killed under them; is every vote there, once?

Starts ``holdfast people serve`` as a user would, on SQLite and then on a private PostgreSQL. Every person takes a
task, looks at its images, votes on one every two seconds, sends the task off and takes the next. Then what the
clients were told is compared with what the database has. The second part kills the server (-9) in the middle and
starts it again; clients keep what was not acknowledged and send it again, as the pages do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
from sqlalchemy import func, select

from holdfast_people.campaigns import Settings
from holdfast_people.making import CampaignSpec, make_campaign
from holdfast_people.tables import items, places, tasks, votes
from holdfast_people.web.services.server_state import ServeOptions, ServerState, open_server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres import postgres_cluster
from web_server import ServerProcess, new_session, server_process

GOAL_P95_S = 0.3
PICTURES_A_TASK = 20
Look = Callable[[list[str]], dict[str, str]]  # tokens of images → yes or no


@dataclass
class Ledger:
    """What the clients sent, and what they were told."""

    sent: set[str] = field(default_factory=set)  # keys of votes
    acknowledged: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)  # tokens of tasks
    seconds: dict[str, list[float]] = field(default_factory=dict)  # what → how long each answer took, once all work
    begins: float = 0.0  # when all are at work
    trouble: Counter[str] = field(default_factory=Counter)


class GoneError(Exception):
    """The server did not answer."""


class Wire(asyncio.Protocol):
    """One HTTP/1.1 connection that is kept: reads an answer's status and body with as little work as possible."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.head, self.status, self.left, self.body = b"", 0, 0, []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(GoneError())

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        self.answer = asyncio.get_running_loop().create_future()
        self.head, self.status, self.body = b"", 0, []
        if self.transport is None:
            self.answer.set_exception(GoneError())
        else:
            self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        if not self.status:
            self.head += data
            head, found, data = self.head.partition(b"\r\n\r\n")
            if not found:
                return
            self.status = int(head[9:12])
            lower = head.lower()
            start = lower.index(b"content-length:") + 15
            self.left = int(lower[start : lower.find(b"\r\n", start) if b"\r\n" in lower[start:] else None])
        self.left -= len(data)
        self.body.append(data)
        if self.left <= 0 and self.answer is not None and not self.answer.done():
            self.answer.set_result((self.status, b"".join(self.body)))


class Client:
    """A person's browser."""

    def __init__(self, url: str, session: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)
        self.headers = f"Host: {self.host}\r\nAuthorization: Bearer {session}\r\nContent-Type: application/json\r\n"
        self.wire: Wire | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        request = f"{method} {path} HTTP/1.1\r\n{self.headers}Content-Length: {len(data)}\r\n\r\n".encode() + data
        if self.wire is None or self.wire.transport is None:
            try:
                _, self.wire = await asyncio.get_running_loop().create_connection(Wire, self.host, self.port)
            except OSError as error:
                raise GoneError from error
        return await self.wire.ask(request)

    def close(self) -> None:
        if self.wire is not None and self.wire.transport is not None:
            self.wire.transport.close()


class Person:
    """Someone who reviews: a task, its images, a vote every few seconds, the next task."""

    def __init__(
        self, client: Client, campaign: int, right: Callable[[list[str]], dict[str, str]], ledger: Ledger
    ) -> None:
        self.client, self.campaign, self.right, self.ledger = client, campaign, right, ledger

    async def work(self, start: float, every: float, until: float) -> None:
        """Vote every ``every`` seconds from ``start`` to ``until`` (of the event loop's clock)."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, start - loop.time()))
        at = start
        while loop.time() < until:
            task = json.loads(await self._insist("task", "POST", f"/api/review/campaigns/{self.campaign}/task"))["task"]
            if task is None:
                self.ledger.trouble["nothing left to judge"] += 1
                return
            tokens = [picture["token"] for picture in task["pictures"]]
            answers = self.right(tokens)
            for token in tokens:
                await self._insist("picture", "GET", f"/media/places/{token}")
                await asyncio.sleep(max(0.0, at - loop.time()))
                if loop.time() >= until:
                    return
                at = max(at + every, loop.time())
                await self._vote(token, answers[token])
            await self._insist("finish", "POST", f"/api/review/tasks/{task['token']}/finish")
            self.ledger.finished.add(task["token"])

    async def _vote(self, token: str, answer: str) -> None:
        key = str(uuid.uuid4())
        self.ledger.sent.add(key)
        answers = {"recognisable": answer, "usable": answer}
        body = {"place": token, "key": key, "answers": answers, "seconds": 1.0}
        await self._insist("vote", "POST", "/api/review/votes", body)
        self.ledger.acknowledged.add(key)

    async def _insist(self, what: str, method: str, path: str, body: Any = None) -> bytes:
        """Ask until the server says yes, with growing pauses, as the pages do."""
        pause = 1.0
        while True:
            begun = time.perf_counter()
            try:
                status, answer = await self.client.ask(method, path, body)
            except GoneError:
                self.ledger.trouble["no answer"] += 1
            else:
                if begun >= self.ledger.begins:
                    self.ledger.seconds.setdefault(what, []).append(time.perf_counter() - begun)
                if status == 200:
                    return answer
                self.ledger.trouble[f"{what}: {status} {answer[:120].decode()}"] += 1
                if status not in (408, 429) and status < 500:
                    raise RuntimeError(f"{method} {path}: {status} {answer[:200]!r}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)


def make_pictures(folder: Path, count: int, seed: int) -> Path:
    """Photographs of 500 × 375 pixels in two classes, each with a patch of its own."""
    known = sorted(path for path in resources.files("foolbox").joinpath("data").iterdir() if "imagenet_" in path.name)
    decoded = [cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR) for path in known]
    rng = np.random.default_rng(seed)
    for index in range(count):
        image = cv2.resize(decoded[index % len(decoded)], (500, 375), interpolation=cv2.INTER_CUBIC)
        image[20:80, 20:80] = cv2.resize(rng.integers(0, 256, (4, 4, 3), np.uint8), (60, 60))
        path = folder / ("day", "night")[index % 2] / f"{index:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return folder


def open_campaign(state: ServerState, folder: Path, people: int, votes_each: float) -> int:
    """Enough images for everybody until the end, ten people for each."""
    tasks_each = int(votes_each / PICTURES_A_TASK) + 1
    pictures = max(people * tasks_each * PICTURES_A_TASK // 10, tasks_each * PICTURES_A_TASK + 20)
    pool = make_pictures(folder / "pool", pictures, 1)
    sure = make_pictures(folder / "sure", 240, 2)
    rules = Settings(images_per_task=PICTURES_A_TASK)
    spec = CampaignSpec(str(pool), sentinels=str(sure), name="load", settings=rules)
    return make_campaign(state.database, spec, state.folder, now=state.now()).campaign_id


def right_answers(state: ServerState) -> Look:
    """What a careful person would see by looking: no to the images that show something else, yes to the others."""

    def look(tokens: list[str]) -> dict[str, str]:
        with state.database.reading() as connection:
            rows = connection.execute(select(places.c.token, places.c.role).where(places.c.token.in_(tokens)))
            return {row.token: "no" if row.role == "negative" else "yes" for row in rows}

    return look


def processor_seconds(process: psutil.Process) -> float:
    """Processor time that a process has used."""
    with process.oneshot():
        return float(process.cpu_times().user + process.cpu_times().system)


async def everybody(people: list[Person], options: argparse.Namespace, middle: Callable[[], None]) -> None:
    """They come in one after another and vote at once; ``middle`` runs when they all have for half of the time."""
    now = asyncio.get_running_loop().time()
    end = now + options.ramp + options.seconds
    rng = random.Random(0)
    jobs = [
        asyncio.create_task(person.work(now + options.ramp * rng.random(), options.every, end)) for person in people
    ]

    async def halfway() -> None:
        await asyncio.sleep(options.ramp + options.seconds / 2)
        await asyncio.to_thread(middle)

    await asyncio.gather(halfway(), *jobs)
    for person in people:
        person.client.close()


def check(state: ServerState, ledger: Ledger) -> dict[str, bool]:
    """Promises against the database."""
    with state.database.reading() as connection:
        keys = list(connection.scalars(select(votes.c.key)))
        judged = select(func.count()).select_from(places.join(tasks)).where(places.c.role == "judge")
        standing = connection.scalar(judged.where(tasks.c.status == "finished"))
        counted = connection.scalar(select(func.sum(items.c.counted)).where(items.c.role == "judge"))
        pairs = select(places.c.item_id, tasks.c.person_id).join(tasks).where(places.c.role == "judge")
        twice = connection.scalar(
            select(func.count()).select_from(
                pairs.group_by(places.c.item_id, tasks.c.person_id).having(func.count() > 1).subquery()
            )
        )
        ended = set(connection.scalars(select(tasks.c.token).where(tasks.c.status.in_(("finished", "discarded")))))
        discarded = connection.scalar(select(func.count()).where(tasks.c.status == "discarded"))
    stored = set(keys)
    return {
        f"{len(ledger.acknowledged):,} acknowledged votes are all there": ledger.acknowledged <= stored,
        "none is there twice": len(keys) == len(stored),
        f"of {len(ledger.sent):,} sent, none is there that no one sent": stored <= ledger.sent,
        f"{len(ledger.finished):,} tasks that were told finished are": ledger.finished <= ended,
        "what counts for the images is what the finished tasks say": standing == (counted or 0),
        "no one judged an image twice": twice == 0,
        "no careful person's task was discarded": discarded == 0,
    }


def spread(values: list[float]) -> str:
    p50, p95, p99, most = np.percentile(values, [50, 95, 99, 100]) * 1000
    return f"p50 {p50:7.1f}   p95 {p95:7.1f}   p99 {p99:7.1f}   max {most:7.1f} ms   ({len(values):,})"


def measure(folder: Path, database: str, options: argparse.Namespace, *, kill: bool) -> bool:
    """One run; True if every promise was kept and, without a kill, the goal was met."""
    state_folder = folder / "state"
    state = open_server(ServeOptions(state=state_folder, database=database))
    campaign = open_campaign(state, folder, options.people, (options.seconds + options.ramp) / options.every)
    sessions = [new_session(state, name=f"person {number}") for number in range(options.people)]
    ledger, right = Ledger(), right_answers(state)
    arguments = ["--database", database] if database else []
    running: list[ServerProcess] = []
    contexts: list[Any] = []

    def start(port: int = 0) -> None:
        contexts.append(server_process(state_folder, *arguments, port=port))
        running.append(contexts[-1].__enter__())

    def restart() -> None:
        begun = time.monotonic()
        port = int(running[-1].url.rpartition(":")[2])
        running[-1].kill()
        start(port)
        print(f"  killed with -9 and started again; {time.monotonic() - begun:.1f} s without a server")

    start()
    people = [Person(Client(running[0].url, session), campaign, right, ledger) for session in sessions]
    server, own = psutil.Process(running[0].process.pid), psutil.Process()
    begun = time.monotonic()
    ledger.begins = time.perf_counter() + options.ramp
    psutil.cpu_percent()
    used = [] if kill else [processor_seconds(server), processor_seconds(own)]
    asyncio.run(everybody(people, options, restart if kill else lambda: None))
    took = time.monotonic() - begun
    used = [] if kill else [processor_seconds(server) - used[0], processor_seconds(own) - used[1]]
    busy = psutil.cpu_percent()
    for context in contexts:
        context.__exit__(None, None, None)
    rate = len(ledger.seconds["vote"]) / options.seconds
    print(f"  {options.people} people at work for {options.seconds:g} s: {rate:.1f} votes/s")
    for what in ("vote", "task", "picture", "finish"):
        if ledger.seconds.get(what):
            print(f"  {what:8} {spread(ledger.seconds[what])}")
    if used:
        shares = f"server {100 * used[0] / took:.0f} %, clients {100 * used[1] / took:.0f} % of one core"
        print(f"  processor: {shares}; the machine {busy:.0f} % of {psutil.cpu_count()}")
    for words, times in ledger.trouble.most_common(5):
        print(f"  {times} × {words}")
    promises = check(state, ledger)
    state.close()
    p95 = float(np.percentile(ledger.seconds["vote"], 95))
    if not kill:
        promises[f"p95 of a vote {1000 * p95:.0f} ms, at most {1000 * GOAL_P95_S:.0f}"] = p95 <= GOAL_P95_S
    for promise, kept in promises.items():
        print(f"  {'ok    ' if kept else 'BROKEN'} {promise}")
    return all(promises.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long all of them vote")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two votes of a person")
    parser.add_argument("--ramp", type=float, default=40.0, help="seconds in which they come in; nothing is timed yet")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--part", choices=["load", "kill", "both"], default="both")
    options = parser.parse_args()
    kept = True
    for backend in ("sqlite", "postgresql"):
        if options.database not in (backend, "both"):
            continue
        for part in ("load", "kill"):
            if options.part not in (part, "both"):
                continue
            print(f"{backend}, {'killed in the middle' if part == 'kill' else 'undisturbed'}")
            with tempfile.TemporaryDirectory(prefix="holdfast-load-") as folder:
                if backend == "sqlite":
                    kept &= measure(Path(folder), "", options, kill=part == "kill")
                else:
                    with postgres_cluster(
                        ("max_connections=100",)
                    ) as url:  # as PostgreSQL comes: it waits for the disk
                        kept &= measure(Path(folder), url, options, kill=part == "kill")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
