"""The review page: tasks, votes, and what is asked.

A browser gets an image's token, its place in the task and the question; it never learns which images are controls.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast_people import assignment, campaigns, voting
from holdfast_people.web.services.dependencies import Audit, Member, NamedCampaign, Server, Token
from holdfast_people.web.services.pages import page

router = APIRouter(tags=["review"])

_Word = Annotated[str, Field(max_length=60, pattern=r"^[^\x00-\x1f\x7f]*$")]
_DAY_S = 86_400.0
_WHY = {
    "quality": "A program made or picked these images to test vision models with; those that people recognise stay.",
    "oracle": "A program let these images pass. Your answers show how often it was right.",
    "naturalness": "A program changed these images. Your answers show how natural it left them.",
    "single": "Vision models are tested with these images; one that shows two of the things would be unfair.",
    "custom": "Vision models are tested with these images. Your answers decide which of them are kept.",
}
"""Why a person is asked, by kind of campaign."""


class QuestionShown(BaseModel):
    """A question; ``{category}`` stands for the class."""

    id: str
    text: str
    answers: list[str]
    keys: list[str]


class PictureShown(BaseModel):
    """An image of a task: its token opens ``/media/places/TOKEN``."""

    token: str
    asked: str
    answers: dict[str, str] | None = Field(description="The person's answers so far.")


class Example(BaseModel):
    """An image to learn from: its token opens ``/media/training/TOKEN``."""

    token: str
    asked: str
    right: dict[str, list[str]] = Field(description="The right answers per question.")
    explanation: str


class TaskShown(BaseModel):
    """A task: one set of images."""

    token: str
    seconds_left: float
    pictures: list[PictureShown]


class Turn(BaseModel):
    """The next task, or the reason why there is none."""

    task: TaskShown | None
    sentence: str


class Sheet(BaseModel):
    """The questions of a campaign, and two images to learn from."""

    name: str
    kind: str
    questions: list[QuestionShown]
    examples: list[Example]


class Vote(BaseModel):
    """A person's answers about one image; the same ``key`` counts once, however often it is sent."""

    model_config = ConfigDict(strict=True)
    place: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,36}$")]
    answers: Annotated[dict[_Word, _Word], Field(min_length=1, max_length=8)]
    seconds: Annotated[float, Field(ge=0, le=_DAY_S, allow_inf_nan=False)]


class Saved(BaseModel):
    """The vote is stored."""

    saved: bool


class Ended(BaseModel):
    """How a task ended; without the reason for discarding it, which would reveal the control images."""

    status: str


@router.get("/review", include_in_schema=False)
def review_list(request: Request, server: Server, person: Member) -> HTMLResponse:
    """Show the campaigns, open ones first."""
    with server.database.reading() as connection:
        known = campaigns.list_campaigns(connection)
        done = {item.id: _own(campaigns.progress(connection, item.id, now=server.now()), person.id) for item in known}
    order = {status: place for place, status in enumerate(campaigns.STATUSES)}
    known.sort(key=lambda campaign: (order[campaign.status], -campaign.id))
    return page(request, "review.html", campaigns=known, done=done)


@router.get("/review/{campaign_id}", include_in_schema=False)
def review_page(request: Request, server: Server, person: Member, campaign: NamedCampaign) -> HTMLResponse:
    """Show the page on which a person works on one campaign."""
    with server.database.reading() as connection:
        asking = [name for name in campaigns.administrators(connection) if name != person.name]
        minutes = campaigns.usual_minutes(connection, campaign.id)
    return page(
        request, "review_task.html", campaign=campaign, judged=campaign.settings.images_per_task,
        asking=asking, why=_WHY[campaign.kind], minutes=minutes,
    )  # fmt: skip


@router.get("/api/review/campaigns/{campaign_id}")
def read_sheet(server: Server, person: Member, campaign: NamedCampaign) -> Sheet:
    """Return what is asked, and two images to learn from."""
    with server.database.reading() as connection:
        pictures = assignment.training(connection, campaign.id)
    examples = [
        Example(
            token=picture.token, asked=words(picture.asked), explanation=_explain(campaign, picture),
            right={question: list(answers) for question, answers in picture.expected.items()},
        )
        for picture in pictures
    ]  # fmt: skip
    questions = [QuestionShown(**asdict(question)) for question in campaign.questions]
    return Sheet(name=campaign.name, kind=campaign.kind, questions=questions, examples=examples)


@router.post("/api/review/campaigns/{campaign_id}/task")
def take_task(server: Server, person: Member, campaign: NamedCampaign) -> Turn:
    """Return the person's open task, or a new one, or why there is none."""
    now = server.now()
    with server.database.writing() as connection:
        task = assignment.next_task(connection, campaign.id, person.id, now=now)
        if task is None:
            reason = assignment.why_nothing(connection, campaign.id, person.id)
            return Turn(task=None, sentence=reason)
    pictures = [
        PictureShown(token=place.token, asked=words(place.asked), answers=place.answers) for place in task.places
    ]
    left = max(task.expires_at - now, 0.0)
    return Turn(task=TaskShown(token=task.token, seconds_left=left, pictures=pictures), sentence="")


@router.post("/api/review/votes")
def cast_vote(vote: Vote, server: Server, person: Member) -> Saved:
    """Store the answers about an image; until its task is sent, a vote with a new key replaces the old one."""
    with server.database.writing() as connection:
        voting.cast(
            connection, place_token=vote.place, person_id=person.id, key=vote.key, answers=vote.answers,
            seconds=vote.seconds, now=server.now(),
        )  # fmt: skip
    return Saved(saved=True)


@router.post("/api/review/tasks/{token}/finish")
def finish_task(token: Token, server: Server, person: Member, record: Audit) -> Ended:
    """Finish a task whose images are all answered; a repeated request gets the same answer."""
    with server.database.writing() as connection:
        before = assignment.get_task(connection, token, person.id)
        outcome = voting.finish(connection, task_token=token, person_id=person.id, now=server.now())
        if outcome.status == "discarded" and before.status == "open":
            subject, detail = f"campaign {before.campaign_id}", {"failed": outcome.reason}
            record(connection, action="task discarded", subject=subject, detail=detail)
    return Ended(status=outcome.status)


def words(label: str) -> str:
    """Return a class as it reads in a question."""
    return " ".join(label.replace("_", " ").split())


def _own(progress: dict[str, Any], person_id: int) -> dict[str, int]:
    """Return what one person has done in a campaign, and what is left for everybody."""
    mine: dict[str, int] = next((row for row in progress["people"] if row["person_id"] == person_id), {})
    left = progress["images"] - progress["finished_images"]
    return {"sets": mine.get("finished", 0), "open": mine.get("open", 0), "left": left, "images": progress["images"]}


def _explain(campaign: campaigns.Campaign, example: assignment.PracticePicture) -> str:
    """Return why the right answers to an image to learn from are right."""
    if campaign.kind == "naturalness":
        grades = next(iter(example.expected.values()))
        if "5" in grades:
            return "This image is as it was taken: 3, 4 or 5 are good answers. How natural within that is up to you."
        return "The parts of this image were shuffled and half of them turned into negatives: 1 or 2 is right."
    yes = all(answers == ["yes"] for answers in example.expected.values())
    both = "both answers are" if len(example.expected) > 1 else "the answer is"
    if yes:
        return f"The {words(example.asked)} that is asked for is there, so {both} yes."
    return f"There is no {words(example.asked)} in this image, so {both} no."
