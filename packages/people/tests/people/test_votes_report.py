"""The page of a campaign, and the section on FMR corrected by people: their numbers are those of the statistics."""

from __future__ import annotations

import csv
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made_runs import make_run
from made_walks import make_walks
from test_report_browser import HOSTILE, Opened, browser

from holdfast import api
from holdfast.core.errors import UserError
from holdfast.core.votes import Votes
from holdfast.reports import build
from holdfast.stats.people.votes import accept, acceptance
from holdfast.stats.walks.fmr_people import COLUMNS, fmr_corrected, judged_walks
from holdfast.store import Run, write_json, write_table
from holdfast.store.run import table_csv
from holdfast_people.export import results
from holdfast_people.report.votes import build as build_votes
from made_votes import NATURAL, QUALITY, make_votes

__all__ = ["browser"]  # the fixture


def words(page: Path) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text("utf8").partition("<main")[2])).split())


def quality(names: tuple[str, ...] = ("cup", "lamp"), images: int = 24) -> Votes:
    rng = np.random.default_rng(1)
    rows = []
    for image in range(images):
        for person in range(5):
            good = rng.random() < (0.85 if image % 3 else 0.3)
            label = names[image % len(names)]
            rows.append(
                {
                    "sample_id": f"{names[0]} {image}", "source_id": f"p{image // 2}", "person": person, "label": label,
                    "asked": label, "nuisance": names[(image + 1) % len(names)], "generator": f"g{image % 2}",
                    "answers": {"recognisable": "yes" if good else "no", "usable": "no"},
                }
            )  # fmt: skip
    return make_votes(rows, questions=QUALITY)


def write(votes: Votes, folder: Path, **facts: Any) -> Path:
    write_table(folder / "votes.parquet", votes.to_arrow())
    for name, frame in results(votes).items():
        write_table(folder / "results" / f"{name}.parquet", pa.Table.from_pandas(frame, preserve_index=False))
    write_json(folder / "export.json", {"images": 24, "settings": {"people_per_image": 5}, "status": "closed"} | facts)
    return folder


def test_the_page_says_what_the_statistics_say(tmp_path: Path) -> None:
    votes = quality()
    page = build_votes(write(votes, tmp_path / "out", problems=["one: gone"], images=30))
    overall = acceptance(accept(votes)).iloc[0]
    text = words(page)
    assert f"People accept {100 * overall['estimate']:.1f} % ({100 * overall['low']:.1f} to" in text
    assert "at least 3 of 5 people say yes (recognisable|usable)" in text
    assert "6 images have not been shown yet" in text and "one: gone" in text
    with (page.parent / "tables" / "acceptance_category.csv").open() as file:
        shown = {row["value"]: float(row["estimate"]) for row in csv.DictReader(file)}
    table = acceptance(accept(votes))
    assert shown == table[table["by"] == "category"].set_index("value")["estimate"].to_dict()
    early = "the same as with all votes"
    assert early not in text
    settings = {"people_per_image": 5, "stop": "when-decided"}
    assert words(build_votes(write(votes, tmp_path / "early", settings=settings))).count(early) == 2
    with pytest.raises(UserError):
        build_votes(tmp_path)


def test_ratings(tmp_path: Path) -> None:
    rows = [
        {"sample_id": f"i{i}", "person": p, "model": f"m{i % 2}", "answers": {"natural": str(1 + (i + p) % 5)}}
        for i in range(12)
        for p in range(5)
    ]
    text = words(build_votes(write(make_votes(rows, questions=NATURAL), tmp_path / "out")))
    assert "The mean rating is 3.00" in text and "(natural, 3 or more)" in text


def test_numbers_of_yes_that_no_image_has_are_gaps_not_left_out(tmp_path: Path) -> None:
    rows = [
        {"sample_id": f"i{i}", "person": p, "answers": {"shows": "yes" if i % 2 or p == 0 else "no"}}
        for i in range(6)
        for p in range(5)
    ]  # one or five of five say yes
    page = build_votes(write(make_votes(rows), tmp_path / "out"))
    drawn = (page.parent / "figures" / "divided.svg").read_text()
    assert all(f">{number}</text>" in drawn for number in range(6))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("vote-pages")
    run = make_walks(folder / "run")
    return {
        "plain": build_votes(write(quality(), folder / "plain")),
        "hostile": build_votes(write(quality(HOSTILE), folder / "hostile", problems=[HOSTILE[0]])),
        "walks": build([run], folder / "report", resamples=200, votes=about_walks(run)),
    }


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["plain", "hostile", "walks"])
def test_nothing_overflows_complains_or_reaches_out(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    with Opened(browser, pages[name], width) as opened:
        page = opened.page
        page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.troubles == []
        assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def about_walks(run: Run, chance: float = 0.7, seed: int = 0) -> Votes:
    """Votes on two thirds of a run's accepted images."""
    rng = np.random.default_rng(seed)
    ends = [row for row in run.rows().to_pylist() if row["condition"] == "perturbed" and row["status"] == "ok"]
    rows = []
    for number, row in enumerate(ends):
        if number % 3:
            confirmed = rng.random() < (0.95 if row["correct"] else chance)
            rows += [
                {
                    "sample_id": row["row_id"], "person": person, "label": row["label"], "asked": row["label"],
                    "pixels_sha256": row["image_sha256"], "answers": {"shows": "yes" if confirmed else "no"},
                }
                for person in range(5)
            ]  # fmt: skip
    return make_votes(rows)


def test_the_section_on_corrected_fmr(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run")
    votes = about_walks(run)
    text = words(build([run], tmp_path / "report", resamples=300, votes=votes))
    table = fmr_corrected(judged_walks(run.rows(COLUMNS), votes), resamples=300)
    for row in table[(table["label"] == "") & (table["measure"] == "fmr")].to_dict("records"):
        spelled = f"FMR {100 * row['by_oracle']:.1f} % by the oracle alone, {100 * row['estimate']:.1f} % ("
        assert spelled in text and row["judged"] < row["validated"]
        assert f"people judged {row['judged']} of {row['validated']} accepted images" in text
    same = api.Results(run).fmr_corrected(votes, resamples=300)
    assert same["estimate"].equals(table["estimate"])
    # All confirmed: the same FMR as before.
    sure = table_of(run, about_walks(run, chance=2.0, seed=5))
    assert (sure["estimate"] - sure["by_oracle"]).abs().max() < 0.1


def test_ratings_do_not_confirm_what_an_image_shows(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run")
    ratings = make_votes([{"sample_id": "one", "person": 1, "answers": {"natural": "5"}}], questions=NATURAL)
    with pytest.raises(UserError, match="rate images and do not say what they show"):
        api.Results(run).fmr_corrected(ratings)


def table_of(run: Run, votes: Votes) -> Any:
    table = api.Results(run).fmr_corrected(votes, resamples=100)
    return table[(table["label"] == "") & (table["measure"] == "fmr")]


def test_votes_about_something_else(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run")
    page = build([run], tmp_path / "report", resamples=100, votes=quality())
    assert "about none of the accepted images" in words(page)
    with pytest.raises(UserError, match="none of the run's accepted images"):
        api.Results(run).fmr_corrected(quality())
    with pytest.raises(UserError, match="no latent walk"):
        build([make_run(tmp_path / "still")], tmp_path / "still-report", resamples=100, votes=quality())


def test_csv_of_votes_has_every_column() -> None:
    votes = quality()
    rows = list(csv.DictReader(table_csv(votes.table).decode().splitlines()))
    assert len(rows) == votes.table.num_rows and list(rows[0]) == votes.table.column_names
