"""A small campaign of drawn shapes, a browser, and a person who knows every answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
from sqlalchemy import select

from holdfast_people.campaigns import Settings
from holdfast_people.making import CampaignSpec, make_campaign
from holdfast_people.tables import items, places, tasks, votes
from holdfast_people.web.services.server_state import ServerState
from shapes import CLASSES, draw

SMALL = Settings(people_per_image=2, images_per_task=8, at_least=1, rule="")
"""Tasks of four images to judge, two of them twice, and a control of each kind."""


def drawn(folder: Path, first: int, count: int) -> Path:
    """``count`` images of each class."""
    for label in CLASSES:
        for index in range(first, first + count):
            path = folder / label / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), draw(label, index)[0])
    return folder


def campaign(state: ServerState, folder: Path, *, each: int = 4, **options: Any) -> int:
    """A campaign over three classes of shapes, ``each`` images a class."""
    spec = CampaignSpec(
        str(drawn(folder / f"pool{each}", 0, each)),
        sentinels=str(drawn(folder / "known", 50, 10)),
        **({"settings": SMALL} | options),
    )
    return make_campaign(state.database, spec, state.folder, now=state.now()).campaign_id


def answer_sheet(state: ServerState) -> dict[str, tuple[str, bool]]:
    """Place → its role, and whether a person who looks would say yes. A repeat has the role ``repeat``."""
    with state.database.reading() as connection:
        query = select(places.c.token, places.c.role, items.c.role.label("of"), items.c.expected).join(items)
        return {row.token: (row.role, row.of != "negative") for row in connection.execute(query)}


def standing(state: ServerState) -> list[dict[str, Any]]:
    """The newest vote of every place that has one, with its task and how the task ended, by position."""
    with state.database.reading() as connection:
        query = (
            select(places.c.token, places.c.position, places.c.role, places.c.item_id, votes, tasks.c.status,
                   tasks.c.person_id, tasks.c.id.label("task_id"))
            .join(places, places.c.id == votes.c.place_id).join(tasks, tasks.c.id == places.c.task_id)
            .order_by(votes.c.id)
        )  # fmt: skip
        newest = {row["token"]: dict(row) for row in connection.execute(query).mappings()}
    return sorted(newest.values(), key=lambda row: (row["task_id"], row["position"]))


def counts(state: ServerState) -> list[tuple[int, int]]:
    """(held, counted) of every image to judge."""
    with state.database.reading() as connection:
        rows = connection.execute(select(items.c.held, items.c.counted).where(items.c.role == "judge"))
        return [(row.held, row.counted) for row in rows]


class Reviewer:
    """A person at the review page: reads what it shows, answers by key or by tap."""

    def __init__(self, page: Any, url: str, campaign_id: int, state: ServerState) -> None:
        self.page, self.url, self.campaign_id, self.server = page, url, campaign_id, state
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.troubles.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url.removeprefix(url)))

    def open(self) -> None:
        self.page.goto(f"{self.url}/review/{self.campaign_id}")

    def state(self, *wanted: str) -> str:
        """Wait for one of these states."""
        try:
            self.page.wait_for_function(
                "wanted => wanted.includes(document.getElementById('review').dataset.state)", arg=list(wanted)
            )
        except Exception as error:
            shown = self.page.locator("#review").get_attribute("data-state")
            raise AssertionError(
                f"waited for {wanted}, the page is at {shown!r}: {self.page.inner_text('body')!r}, troubles"
                f" {self.troubles}, last requests {self.requests[-8:]}"
            ) from error
        return str(self.page.locator("#review").get_attribute("data-state"))

    def at(self, position: str) -> str:
        """Wait for this image, ready to be answered; its token."""
        self.page.wait_for_function(
            "wanted => document.querySelector('[data-position]').textContent.startsWith(wanted)"
            " && document.querySelector('figure img')?.alt.startsWith(wanted)"
            " && !document.querySelector('fieldset').disabled",
            arg=f"{position} of",
        )
        return str(self.page.locator("figure img").get_attribute("src")).rpartition("/")[2]

    def fetched(self, count: int) -> None:
        """Wait until so many images to judge have come, shown or not."""
        self.page.wait_for_function(
            "count => performance.getEntriesByType('resource')"
            ".filter(one => one.name.includes('/media/places/') && one.responseEnd > 0).length >= count",
            arg=count,
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def examples(self, yes: str = "y", no: str = "n", questions: int = 2) -> None:
        """Through both images to learn from, rightly, by key."""
        self.state("intro")
        self.press("Enter")
        for number, key in ((1, yes), (2, no)):
            self.at(f"Example {number}")
            self.press(*[key] * questions)
            self.page.get_by_text("That is right.").wait_for()
            self.press("ArrowRight")

    def judge(self, number: int, *, questions: int = 2, lie: bool = False) -> str:
        """Answer one image by key, as it is; its token."""
        token = self.at(f"Image {number}")
        yes = answer_sheet(self.server)[token][1] != lie
        self.press(*["y" if yes else "n"] * questions)
        return token
