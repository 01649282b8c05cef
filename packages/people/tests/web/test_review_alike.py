"""Control images cannot be told from the others by anything that a browser gets."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image as Pillow
from review_world import answer_sheet, campaign

from shapes import CLASSES
from web_server import serving


def test_nothing_separates_control_pictures(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        number = campaign(server.state, tmp_path)
        client = server.client()
        sheet = client.get(f"/api/review/campaigns/{number}").json()
        task = client.post(f"/api/review/campaigns/{number}/task").json()["task"]
        roles = answer_sheet(server.state)
        by_role: dict[str, list[str]] = {}
        for one in task["pictures"]:
            by_role.setdefault(roles[one["token"]][0], []).append(one["token"])
        assert {role: len(tokens) for role, tokens in by_role.items()} == {
            "judge": 4, "repeat": 2, "positive": 1, "negative": 1,
        }  # fmt: skip

        assert set(task) == {"token", "seconds_left", "pictures"}
        assert {frozenset(one) for one in task["pictures"]} == {frozenset({"token", "asked", "answers"})}
        assert {len(one["token"]) for one in task["pictures"]} == {43}
        assert len({one["token"] for one in task["pictures"]}) == 8
        assert {one["asked"] for one in task["pictures"]} <= set(CLASSES)
        assert {one["answers"] for one in task["pictures"]} == {None}

        answers, shapes, headers = [], set(), []
        for token in (one["token"] for one in task["pictures"]):
            answer = client.get(f"/media/places/{token}")
            answers.append(answer)
            picture = Pillow.open(io.BytesIO(answer.content))
            shapes.add((picture.format, picture.mode, picture.size))
            varying = ("etag", "content-length", "date")
            headers.append({key: value for key, value in answer.headers.items() if key not in varying})
        assert shapes == {("JPEG", "RGB", (768, 576))}
        assert all(one == headers[0] for one in headers)
        # A repeat is the same image; neither its size, its hash nor its ETag says so.
        for part in (lambda a: a.headers["etag"], lambda a: a.headers["content-length"], lambda a: a.content):
            assert len({part(answer) for answer in answers}) == 8
        pixels = {Pillow.open(io.BytesIO(answer.content)).tobytes() for answer in answers}
        assert len(pixels) == 6

        # What a vote is answered with, and what a task becomes, tells nothing either.
        said = set()
        for place, one in enumerate(task["pictures"]):
            wrong = "no" if roles[one["token"]][1] else "yes"
            vote = {
                "place": one["token"],
                "key": f"{place:032x}",
                "answers": dict.fromkeys(("recognisable", "usable"), wrong),
                "seconds": 1.5,
            }
            answer = client.post("/api/review/votes", json=vote)
            said.add((answer.status_code, answer.text))
        assert said == {(200, '{"saved":true}')}
        ended = client.post(f"/api/review/tasks/{task['token']}/finish").json()
        assert ended == {"status": "discarded"}
        assert [set(one) for one in sheet["examples"]] == [{"token", "asked", "right", "explanation"}] * 2


def test_pictures_and_tasks_are_their_persons_own(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        number = campaign(server.state, tmp_path)
        mine, other, nobody = server.client(), server.client(), server.stranger()
        task = mine.post(f"/api/review/campaigns/{number}/task").json()["task"]
        place = task["pictures"][0]["token"]
        assert mine.post(f"/api/review/campaigns/{number}/task").json()["task"]["token"] == task["token"]
        assert (other.get(f"/media/places/{place}").status_code, nobody.get(f"/media/places/{place}").status_code) == (
            404,
            401,
        )
        vote = {"place": place, "key": "k" * 32, "answers": {"recognisable": "yes", "usable": "no"}, "seconds": 2}
        assert other.post("/api/review/votes", json=vote).status_code in (400, 404)
        assert nobody.post("/api/review/votes", json=vote).status_code == 401
        assert mine.post("/api/review/votes", json=vote | {"answers": {"recognisable": "maybe"}}).status_code == 400
        assert mine.post("/api/review/votes", json=vote | {"seconds": -1}).status_code == 422
        assert mine.post("/api/review/votes", json=vote).status_code == 200
        assert mine.post("/api/review/votes", json=vote).status_code == 200
        again = mine.post(f"/api/review/campaigns/{number}/task").json()["task"]
        assert [one["answers"] for one in again["pictures"]] == [vote["answers"]] + [None] * 7
        unfinished = mine.post(f"/api/review/tasks/{task['token']}/finish")
        assert unfinished.status_code == 400 and "7 of 8 images have no answer yet" in unfinished.text
        assert mine.get("/api/review/campaigns/99").status_code == mine.get("/review/99").status_code == 404
