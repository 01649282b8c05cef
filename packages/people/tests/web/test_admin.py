"""Administration and images, over HTTP and in a real browser."""

from __future__ import annotations

import io
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image as Pillow
from playwright.sync_api import sync_playwright
from sqlalchemy import select

from browsing import ANSWERS, Held, acted
from holdfast.data import load_collection
from holdfast_people.sources import add_source
from holdfast_people.tables import items, places
from holdfast_people.web.services.server_state import SIDES, PictureCache, encode
from shapes import make_photos
from web_server import Serving, open_campaign, serving

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def take(client: httpx.Client, campaign: int) -> dict[str, Any]:
    task: dict[str, Any] = client.post(f"/api/review/campaigns/{campaign}/task").json()["task"]
    return task


def judge(server: Serving, client: httpx.Client, task: dict[str, Any], *, careless: bool = False) -> str:
    with server.state.database.reading() as connection:
        roles = {row.token: row.role for row in connection.execute(select(places.c.token, places.c.role))}
    for picture in task["pictures"]:
        answer = "no" if roles[picture["token"]] == "negative" and not careless else "yes"
        body = {"place": picture["token"], "key": str(uuid.uuid4()), "seconds": 1}
        body["answers"] = {"recognisable": answer, "usable": answer}
        assert client.post("/api/review/votes", json=body).status_code == 200
    status: str = client.post(f"/api/review/tasks/{task['token']}/finish").json()["status"]
    return status


def test_a_campaign_from_known_sources_its_progress_and_its_end(server: Serving, tmp_path: Path) -> None:
    first = open_campaign(server.state, tmp_path)
    admin, careful, careless = server.client("admin"), server.client(name="Careful"), server.client(name="Careless")
    known = {source["name"]: source for source in admin.get("/api/sources").json()}
    new = {
        "name": "again", "kind": "quality", "source": known["pool"]["id"],
        "controls": known["controls of shapes"]["id"], "people_per_image": 2, "at_least": 1, "images_per_task": 8,
    }  # fmt: skip
    made = admin.post("/api/campaigns", json=new)
    assert made.status_code == 201, made.text
    assert admin.post("/api/campaigns", json=new).status_code == 409
    assert admin.post("/api/campaigns", json=new | {"name": "x", "source": 999}).status_code == 404
    assert admin.post("/api/campaigns", json=new | {"name": "x", "at_least": 3}).status_code == 400
    assert [one["name"] for one in admin.get("/api/campaigns").json()] == ["again", "shapes"]
    campaign = made.json()["id"]
    assert campaign != first

    before = admin.get(f"/api/campaigns/{campaign}/progress").json()
    assert (before["images"], before["wanted"], before["counted"], before["people"]) == (12, 24, 0, [])
    task = take(careful, campaign)
    during = admin.get(f"/api/campaigns/{campaign}/progress").json()
    assert (during["open_tasks"], during["people_at_work"], during["held"]) == (1, 1, 4)
    assert judge(server, careful, task) == "finished"
    assert judge(server, careless, take(careless, campaign), careless=True) == "discarded"
    after = admin.get(f"/api/campaigns/{campaign}/progress").json()
    assert (after["counted"], after["finished_tasks"], after["discarded_tasks"], after["open_tasks"]) == (4, 1, 1, 0)
    assert {one["name"]: one["counted"] for one in after["people"]} == {"Careful": 4, "Careless": 0}

    assert admin.put(f"/api/campaigns/{campaign}/status", json={"status": "paused"}).status_code == 204
    assert careful.post(f"/api/review/campaigns/{campaign}/task").json()["task"] is None
    assert admin.put(f"/api/campaigns/{campaign}/status", json={"status": "gone"}).status_code == 422
    assert admin.put("/api/campaigns/99/status", json={"status": "open"}).status_code == 404
    page = admin.get(f"/admin/campaigns/{campaign}").text
    assert "Careful" in page and "paused" in page

    lines = [(line["name"], line["action"], line["subject"]) for line in admin.get("/api/audit").json()]
    assert ("a admin", "campaign", f"campaign {campaign}") in lines
    assert ("a admin", "paused", f"campaign {campaign}") in lines
    assert [line for line in lines if line[1] == "task discarded"] == [
        ("Careless", "task discarded", f"campaign {campaign}")
    ]


def test_a_discarded_task_is_recorded_once(server: Serving, tmp_path: Path) -> None:
    campaign, client = open_campaign(server.state, tmp_path), server.client()
    task = take(client, campaign)
    assert judge(server, client, task, careless=True) == "discarded"
    assert client.post(f"/api/review/tasks/{task['token']}/finish").json()["status"] == "discarded"
    lines = server.client("admin").get("/api/audit").json()
    assert [line["action"] for line in lines].count("task discarded") == 1


def test_the_audit_log_turns_pages(server: Serving) -> None:
    admin = server.client("admin")
    for number in range(5):
        admin.post("/api/invitations", json={"note": f"number {number}"})
    first = admin.get("/api/audit", params={"limit": 3}).json()
    second = admin.get("/api/audit", params={"limit": 3, "before": first[-1]["id"]}).json()
    notes = [line["detail"]["note"] for line in first + second]
    assert notes == [f"number {number}" for number in (4, 3, 2, 1, 0)]


def test_the_server_itself_takes_back_tasks_that_ran_out_of_time(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    with serving(tmp_path / "state", clock=lambda: now[0]) as server:
        campaign = open_campaign(server.state, tmp_path, minutes=10)
        take(server.client(), campaign)

        def held() -> int:
            with server.state.database.reading() as connection:
                return sum(connection.scalars(select(items.c.held)))

        assert held() == 4
        now[0] += 601
        deadline = time.monotonic() + 60
        while held() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert held() == 0


def test_pictures_of_a_task_are_alike_and_its_owners_alone(server: Serving, tmp_path: Path) -> None:
    campaign = open_campaign(server.state, tmp_path)
    mine, other = server.client(), server.client()
    tokens = [picture["token"] for picture in take(mine, campaign)["pictures"]]
    answers = [mine.get(f"/media/places/{token}") for token in tokens]
    for answer in answers:
        assert answer.status_code == 200 and answer.headers["content-type"] == "image/jpeg"
        assert "private" in answer.headers["cache-control"]
        picture = Pillow.open(io.BytesIO(answer.content))
        assert max(picture.size) == SIDES["place"] and not picture.getexif()
        assert {key for key in picture.info if not key.startswith("jfif")} == {"comment"}  # the padding
    assert len({frozenset(answer.headers) for answer in answers}) == 1
    assert len({answer.headers["etag"] for answer in answers}) == len(tokens)  # a repeat's is another, too
    assert (
        len({answer.content for answer in answers}) == len({len(answer.content) for answer in answers}) == len(tokens)
    )
    pixels = {np.asarray(Pillow.open(io.BytesIO(answer.content))).tobytes() for answer in answers}
    assert len(pixels) == len(tokens) - 2  # though the images of the two repeats are the same
    again = mine.get(f"/media/places/{tokens[0]}", headers={"if-none-match": answers[0].headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert other.get(f"/media/places/{tokens[0]}").status_code == 404
    assert server.client("admin").get(f"/media/places/{tokens[0]}").status_code == 404
    assert mine.get("/media/images/1").status_code == 404  # no one looks up the images of a campaign by number
    sheet = mine.get(f"/api/review/campaigns/{campaign}").json()
    assert mine.get(f"/media/training/{sheet['examples'][0]['token']}").status_code == 200


def test_full_pictures_are_upright_and_without_metadata(server: Serving, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "thing"
    folder.mkdir(parents=True)
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20] = (255, 0, 0)
    exif = Pillow.Exif()
    exif[0x0112], exif[0x010E] = 6, "where it was taken"  # to be turned by 90°; a description
    Pillow.fromarray(pixels).save(folder / "a.jpg", exif=exif, quality=95)
    (folder / "broken.jpg").write_bytes((folder / "a.jpg").read_bytes()[:200])
    with server.state.database.writing() as connection:
        reference = str(tmp_path / "data")
        add_source(connection, name="data", reference=reference, collection=load_collection(reference), now=0.0)
    admin = server.client("admin")
    answer = admin.get("/media/images/1")
    picture = Pillow.open(io.BytesIO(answer.content))
    assert picture.size == (40, 60) and not picture.getexif() and b"taken" not in answer.content
    right, left = np.asarray(picture)[30, 35], np.asarray(picture)[30, 5]
    assert right[0] > 200 and left[0] < 60
    assert Pillow.open(io.BytesIO(admin.get("/media/images/1/small").content)).size == (40, 60)
    unreadable = admin.get("/media/images/2")
    assert unreadable.status_code == 404 and "broken" not in unreadable.text and str(tmp_path) not in unreadable.text


def test_pictures_are_kept_while_there_is_room() -> None:
    loads: list[int] = []

    class Source:
        def __init__(self, number: int) -> None:
            self.number = number

        def load(self, *, max_pixels: int) -> np.ndarray:
            loads.append(self.number)
            return np.full((64, 64, 3), self.number, np.uint8)

    size = len(encode(np.zeros((64, 64, 3), np.uint8), 0, enlarge=False))
    sample = lambda number: type("Sample", (), {"image": Source(number)})()  # noqa: E731
    pictures = PictureCache(sample, max_pixels=10_000, capacity=2 * size + size // 2)
    for number in (1, 2, 1, 3, 1, 2):
        pictures.get(number, "full")
    assert loads == [1, 2, 3, 2]


def test_inviting_and_withdrawing_in_a_browser(server: Serving, tmp_path: Path) -> None:
    campaign = open_campaign(server.state, tmp_path)
    chromium = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("there is no chromium to open the page with")
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_context().new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{server.link}?next=/admin/people")
        page.get_by_label("Your name").fill("Ada")
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/admin/people")
        page.get_by_label("Invite").fill("Grace <b>")
        page.get_by_role("button", name="Make a link").click()
        page.wait_for_selector("#made:not([hidden])")
        link = page.get_by_label("invitation link").input_value()
        page.wait_for_selector("th:has-text('Grace <b>')")
        guest = browser.new_context().new_page()
        guest.goto(link)
        guest.get_by_label("Your name").fill("Grace")
        guest.get_by_role("button", name="Start").click()
        guest.wait_for_selector("text=What would you like to do?")
        page.get_by_label("Invite").fill("Rosalind")
        page.get_by_role("button", name="Make a link").click()
        page.wait_for_selector("th:has-text('Rosalind')")
        # Two are withdrawn, and the list as it was after the first arrives last.
        page.on("dialog", lambda dialog: dialog.accept())
        page.evaluate(ANSWERS)
        lists = Held(page, "**/admin/people")
        page.get_by_role("row", name="Grace <b>").get_by_role("button", name="Withdraw").click()
        first = lists.next()
        answer = first.fetch()
        page.get_by_role("row", name="Rosalind").get_by_role("button", name="Withdraw").click()
        lists.next().continue_()
        page.wait_for_selector("tr:has-text('Rosalind') .revoked")
        first.fulfill(response=answer)
        acted(page, "/admin/people", 2)
        assert page.locator("tr:has-text('Rosalind') .revoked, tr:has-text('Grace <b>') .revoked").count() == 2
        guest.goto(f"{server.url}/review")
        assert "/login" in guest.url

        page.goto(f"{server.url}/admin/campaigns/{campaign}")
        assert page.locator("[data-fact=open_tasks]").inner_text() == "0"
        take(server.client(name="Katherine"), campaign)
        page.wait_for_selector("th:has-text('Katherine')")  # without loading the page again
        assert page.locator("[data-fact=open_tasks]").inner_text() == "1"
        # The campaign is paused while the page asks how it goes, and that answer arrives last.
        page.evaluate(ANSWERS)
        questions = Held(page, "**/progress")
        first = questions.next()
        answer = first.fetch()
        page.get_by_role("button", name="Pause").click()
        questions.next().continue_()
        page.wait_for_selector(".badge.paused")
        first.fulfill(response=answer)
        acted(page, "/progress", 2)
        assert page.locator("[data-status]").inner_text() == "paused"
        page.goto(f"{server.url}/admin")  # which asks for nothing by itself while they log out
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        browser.close()
    assert complaints == []


def test_opening_a_campaign_in_a_browser(server: Serving, tmp_path: Path) -> None:
    chromium = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("there is no chromium to open the page with")
    for name, count in (("pool", 4), ("sure", 10)):
        reference = str(make_photos(tmp_path / name, count) / "images")
        with server.state.database.writing() as connection:
            add_source(connection, name=name, reference=reference, collection=load_collection(reference), now=0.0)
    broken = next((tmp_path / "pool" / "images").rglob("*.png"))
    broken.write_bytes(broken.read_bytes()[:60])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        context = browser.new_context()
        server.log_in(context, "admin", "x" * 100)
        page = context.new_page()
        page.goto(f"{server.url}/admin")
        page.get_by_label("Name", exact=True).fill("the first <one>")
        # As it is: what is judged and what is certain are not the same dataset.
        page.get_by_role("button", name="Open the campaign").click()
        page.wait_for_url("**/admin/campaigns/*")
        assert page.locator("h1").inner_text() == "the first <one>"
        told = page.locator("#told").inner_text()
        assert "11 images to judge" in told and "Left out" in told and broken.stem in told
        page.goto(f"{server.url}/admin/people")  # a long word of someone's pushes no button off the page
        button = page.get_by_role("row", name="x" * 100).get_by_role("button", name="Withdraw").bounding_box()
        assert button is not None and button["x"] + button["width"] <= 1280
        browser.close()


def test_the_api_page_lists_every_operation(server: Serving) -> None:
    page = server.stranger().get("/api")
    assert page.status_code == 200
    paths = server.stranger().get("/api/openapi.json").json()["paths"]
    assert len(paths) > 15 and all(path.startswith(("/api/", "/media/")) for path in paths)
    assert all(path in page.text for path in paths)
