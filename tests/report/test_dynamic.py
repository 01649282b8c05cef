"""The section on latent walks: its figures are those of the statistics, whatever the run holds."""

from __future__ import annotations

import csv
import re
from html import unescape
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from made_runs import make_run
from made_walks import CARD, OPTIONS, make_walks

from holdfast.core.schema import FRAMES, WALK_TIMES, end_picture, original_picture
from holdfast.reports import build
from holdfast.reports.page.evidence import Analysis
from holdfast.stats.walks.fmr import fmr, from_counts
from holdfast.stats.walks.walk_rows import paired
from holdfast.store import Parts, Run, write_json

WALKS = ["dynamic", "ends", "walks", "filmstrips"]
LAST = ["errors", "run"]


def page_of(runs: list[Run], out: Path) -> str:
    return build(runs, out, resamples=200).read_text(encoding="utf8")


def words(page: str) -> str:
    """The text between the tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.partition("<main")[2])).split())


def family_of(run: Run, space: str | None = None) -> pd.DataFrame:
    """The statistics behind the page, setting by setting."""
    images = paired(run.rows(), space=space)
    settings = ["generator", "oracle"]
    parts = [fmr(part).assign(**dict(zip(settings, key, strict=True))) for key, part in images.groupby(settings)]
    return pd.concat(parts, ignore_index=True)


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([^"]+)"', page)


def table(out: Path, name: str) -> list[dict[str, str]]:
    with (out / "tables" / f"{name}.csv").open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, str]:
    folder = tmp_path_factory.mktemp("plain")
    run = make_walks(folder / "run", kinship=["timm:first and its oracle are cousins."], all_outputs=0.8)
    return run, folder / "report", page_of([run], folder / "report")


def test_a_run_of_walks_has_their_sections_and_no_others(plain: tuple[Run, Path, str]) -> None:
    assert sections(plain[2]) == ["verdict", *WALKS, *LAST]


def test_every_measure_is_that_of_the_statistics(plain: tuple[Run, Path, str]) -> None:
    run, out, _ = plain
    family = family_of(run)
    for name, label in (("fmr", False), ("fmr_by_class", True)):
        rows = table(out, name)
        assert len(rows) == (8 if label else 2)
        for row in rows:
            same = family[(family["model"] == row["model"]) & (family["label"] == (row["label"] if label else ""))]
            assert len(same) == 12
            for one in same.itertuples():
                for key, value in (("", one.estimate), ("_from", one.low), ("_to", one.high)):
                    written = row[f"{one.measure}{key}"]
                    assert (written == "") if pd.isna(value) else float(written) == pytest.approx(value)


def test_the_counts_are_those_of_the_rows(plain: tuple[Run, Path, str]) -> None:
    run, out, page = plain
    rows = run.rows().to_pandas()
    for row in table(out, "fmr"):
        mine = rows[rows["model"] == row["model"]]
        original, perturbed = (mine[mine["condition"] == name] for name in ("original", "perturbed"))
        accepted = perturbed[perturbed["status"] == "ok"]
        counts = (len(original), original["correct_restricted"].sum(), len(accepted))
        expected = from_counts(*map(int, counts), int(accepted["correct_restricted"].sum()))
        assert [int(row[name]) for name in ("n", "right", "validated", "right_validated")] == [
            expected.n, expected.right, expected.validated, expected.right_validated,
        ]  # fmt: skip
        assert float(row["fmr"]) == pytest.approx(expected.fmr)
        assert float(row["fmr_low"]) == pytest.approx(expected.fmr_low)
        assert float(row["fmr_high"]) == pytest.approx(expected.fmr_high)
        assert f"{100 * float(row['fmr']):.1f}" in words(page)


def test_label_spaces_are_stated_and_compared(plain: tuple[Run, Path, str]) -> None:
    run, out, page = plain
    rows = table(out, "fmr_label_spaces")
    assert [row["counted"] for row in rows] == ["the dataset's classes"] * 2 + ["all outputs of the model"] * 2
    for space, part in (("dataset", rows[:2]), ("all", rows[2:])):
        family = family_of(run, space)
        pooled = family[(family["label"] == "") & (family["measure"] == "fmr")].set_index("model")["estimate"]
        assert {row["model"]: float(row["fmr"]) for row in part} == pytest.approx(pooled.to_dict())
    assert float(rows[0]["standard_accuracy"]) > float(rows[2]["standard_accuracy"])
    text = "The loss competes over the dataset's classes, the oracle over the dataset's classes, right answers over"
    assert text in words(page)


def test_options_card_and_warnings_are_printed(plain: tuple[Run, Path, str]) -> None:
    text = words(plain[2])
    for key, value in OPTIONS.items():
        shown = "off" if value is False else "none" if value == "" else value
        assert f"{key.replace('_', ' ')} = {shown}" in text
    assert all(value in text for row in CARD for value in row)
    assert "timm:first and its oracle are cousins." in text


def test_stops_are_counted(plain: tuple[Run, Path, str]) -> None:
    run, out, page = plain
    walks = pa.concat_tables(pq.read_table(path) for path in (run.path / "details/walks").glob("*.parquet"))
    named = {
        "all steps taken": "budget",
        "rejected on the way": "rejected",
        "rejected at the first image": "first_rejected",
    }
    rows = table(out, "walk_stops")
    for words_, stop in named.items():
        assert sum(int(row[words_]) for row in rows) == pc.sum(pc.equal(walks["stop"].cast(pa.string()), stop)).as_py()
    assert sum(int(row["n"]) for row in rows) == len(walks)
    assert (
        sum(int(row["reconstruction_rejected"]) for row in rows)
        == pc.sum(pc.invert(walks["reconstruction_accepted"])).as_py()
    )
    assert "already rejects the plain reconstruction" in words(page)


def test_distances_are_quantiles_of_accepted_walks(plain: tuple[Run, Path, str]) -> None:
    run, out, _ = plain
    walks = pd.concat(pd.read_parquet(path) for path in (run.path / "details/walks").glob("*.parquet"))
    accepted = walks[walks["validated"]]
    rows = table(out, "walk_distances")
    assert {row["measure"] for row in rows} == {"image_distance", "perceptual_distance", "colour_shift"}
    for row in rows:
        mine = accepted.loc[accepted["row_id"].str.startswith(f"timm:{row['row']}-"), row["measure"]]
        assert int(row["n"]) == len(mine)
        assert float(row["p50"]) == pytest.approx(mine.median())
        assert float(row["p10"]) == pytest.approx(mine.quantile(0.1))


def test_filmstrips_show_pictures_and_both_answers(plain: tuple[Run, Path, str]) -> None:
    page = plain[2]
    part = page.partition('<section id="filmstrips"')[2].partition("</section>")[0]
    strips = part.split('<article class="photo"')[1:]
    assert len(strips) == 4  # two images of two models
    for strip in strips:
        tiles = strip.split('<li class="tile')[1:]
        assert 2 <= len(tiles) <= 8
        assert all('src="data:image/jpeg;base64,' in tile and "oracle" in tile and "model" in tile for tile in tiles)
        assert ">step 0" in tiles[0]
        assert strip.count("· counts") == (0 if "original is kept" in strip else 1)
    assert len(part) < 400_000


def test_photos_show_what_walks_against_each_model_left(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run", frames=0)
    rows = run.rows(["sample_id", "condition", "row_id", "model", "correct_restricted", "status"]).to_pylist()
    name = "image 0 of cat"
    ends = [row for row in rows if row["sample_id"] == name and row["condition"] == "perturbed"]
    picture = cv2.imencode(".png", np.full((8, 8, 3), 90, np.uint8))[1].tobytes()
    for file in (original_picture(name), *(end_picture(row["row_id"]) for row in ends if row["status"] == "ok")):
        (run.path / file).parent.mkdir(parents=True, exist_ok=True)
        (run.path / file).write_bytes(picture)
    page = page_of([run], tmp_path / "report")
    part = page.partition('<section id="ends"')[2].partition("</section>")[0]
    said = words(f"<main{part}")
    assert "original" in said and name in said and "image 1 of cat" not in said
    assert part.count("data:image/jpeg") == 1 + sum(row["status"] == "ok" for row in ends)
    assert said.count("oracle accepts") == sum(row["status"] == "ok" for row in ends)
    assert said.count("oracle rejects the first image") == sum(row["status"] != "ok" for row in ends)


def test_time_of_dense_and_sparse_walks_is_compared(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run", frames=0, options=({}, {"sparse": "mask"}))
    sparse = {row["row_id"] for row in run.rows(["row_id", "parameters"]).to_pylist() if '"mask"' in row["parameters"]}
    rows = run.rows(["row_id"]).to_pylist()
    write_json(
        run.path / WALK_TIMES / "a.json", {row["row_id"]: 0.5 if row["row_id"] in sparse else 2.0 for row in rows}
    )
    (run.path / WALK_TIMES / "b.json").write_text("[broken")
    said = words(page_of([run], tmp_path / "report"))
    assert said.count("2.00 s in the dense latent and 0.50 s in the sparse one, 75.0 % saved") == 2
    assert "only runs that had the machine to themselves" in said
    time = table(tmp_path / "report", "walk_time")
    assert [row["latent"] for row in time] == ["dense", "sparse"] * 2


def test_dense_and_sparse_time_are_of_the_same_model_photos_and_options(tmp_path: Path) -> None:
    """A slow model that was walked dense only, and images that only the dense walk has, do not count as saved."""
    models = {"timm:slow": 0.5, "timm:both": 0.5}
    run = make_walks(
        tmp_path / "run", frames=0, models=models, options=({}, {"sparse": "mask"}, {"steps": 9, "sparse": "mask"})
    )
    rows = run.rows().to_pandas()
    is_sparse = rows["parameters"].astype(str).str.contains('"mask"')
    kept = rows[~((rows["model"] == "timm:slow") & is_sparse)]
    for path in run.predictions.paths():
        path.unlink()
    run.predictions.write(pa.Table.from_pandas(kept, schema=run.predictions.schema, preserve_index=False))
    times = {}
    for row in kept.to_dict("records"):
        sparse, extra = '"mask"' in row["parameters"], row["sample_id"].endswith("owl")
        if not (sparse and extra):  # images of owls have no time of the sparse walk, and are slow
            times[row["row_id"]] = 50.0 if extra or row["model"] == "timm:slow" else 1.0 if sparse else 2.0
    write_json(run.path / WALK_TIMES / "a.json", times)
    said = words(page_of([run], tmp_path / "report"))
    assert "both · walk 2 2.00 s in the dense latent and 1.00 s in the sparse one, 50.0 % saved" in said
    assert said.count("in the dense latent") == 1, "a sparse walk with other options has no dense one to compare"
    compared = table(tmp_path / "report", "fmr_by_generator_and_oracle")
    assert {row["walk"]: row["other"] for row in compared} == {
        "1": "sparse none, steps 50", "2": "sparse mask, steps 50", "3": "sparse mask, steps 9",
    }  # fmt: skip


def test_mean_accuracies_on_the_way_are_of_the_same_walks(tmp_path: Path) -> None:
    """One model has no random walk: its other accuracies stay out of the means that are next to it."""
    run = make_walks(tmp_path / "run", frames=0, models={"timm:a": 0.9, "timm:b": 0.1})
    rows = run.rows().to_pandas()
    kept = rows[~((rows["model"] == "timm:b") & (rows["condition"] == "random_walk"))]
    for path in run.predictions.paths():
        path.unlink()
    run.predictions.write(pa.Table.from_pandas(kept, schema=run.predictions.schema, preserve_index=False))
    said = words(page_of([run], tmp_path / "report"))
    own = next(row for row in table(tmp_path / "report", "fmr_baselines") if row["model"].endswith("a"))
    share = f"{100 * float(own['standard_accuracy']):.1f}"
    assert f"Mean accuracy over 1 model with all of these: original {share} %" in said


def test_groups_of_images_have_their_own_acceptance_and_fmr(tmp_path: Path) -> None:
    """As the statistics of each group's images alone, the group that the oracle accepts least first."""
    run = make_walks(tmp_path / "run", photos=20)
    images = paired(run.rows())
    names = sorted(set(images["source_id"]))
    tones = {name: ("dark" if place % 2 else "light") for place, name in enumerate(names)}
    tones.pop(next(iter(tones)))
    page = build([run], tmp_path / "report", resamples=200, analysis=Analysis(attributes={"tone": tones}))
    rows = table(tmp_path / "report", "walks_by_tone")
    assert {row["group"] for row in rows} == {"dark", "light", "not known"}
    for tone in ("dark", "light"):
        own = fmr(images[images["source_id"].map(tones) == tone])
        own = own[own["label"] == ""].set_index(["model", "measure"])
        for row in (row for row in rows if row["group"] == tone):
            for measure in ("validation_rate", "perturbed_accuracy", "fmr"):
                assert float(row[measure]) == pytest.approx(own.loc[(row["model"], measure), "estimate"]), row
    assert "the oracle accepts" in words(page.read_text(encoding="utf8"))


def test_rejected_walks_are_outcomes_not_errors(plain: tuple[Run, Path, str]) -> None:
    text = words(plain[2])
    rejected = plain[0].rows(["status"])["status"].to_pylist().count("rejected")
    assert "none was skipped and none failed" in text
    assert f"{rejected} rows more: walks that the oracle rejected at the first image" in text


def test_a_mixed_report_has_both_and_static_figures_stay(tmp_path: Path, plain: tuple[Run, Path, str]) -> None:
    static = make_run(tmp_path / "static")
    alone = page_of([static], tmp_path / "alone")
    both = page_of([static, plain[0]], tmp_path / "both")
    assert sections(both) == [*sections(alone)[: -len(LAST)], *WALKS, *LAST]
    names = {path.stem for path in (tmp_path / "alone" / "tables").glob("*.csv")} - {"run_1"}
    assert {"scores", "drops", "ranking", "pairs"} <= names
    for name in names:
        assert table(tmp_path / "alone", name) == table(tmp_path / "both", name)
    assert table(tmp_path / "both", "fmr") == table(plain[1], "fmr")


def test_several_settings_are_compared(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"generator": "other:generator"},
        {"oracle": "other:oracle", "oracle_space": "all"},
    ]
    models = {"timm:a": 0.8, "timm:b": 0.5, "timm:c": 0.2}
    run = make_walks(tmp_path / "run", models=models, options=options, frames=0)
    page = page_of([run], tmp_path / "report")
    rows = table(tmp_path / "report", "fmr_by_generator_and_oracle")
    pairs = {(row["generator"], row["oracle"]) for row in rows}
    assert pairs == {
        ("made:generator", "made:oracle"),
        ("other:generator", "made:oracle"),
        ("made:generator", "other:oracle"),
    }
    family = family_of(run)
    for row in rows:
        same = family[
            (family["generator"] == row["generator"]) & (family["oracle"] == row["oracle"])
            & (family["model"] == f"timm:{row['model']}") & (family["label"] == "") & (family["measure"] == "fmr")
        ]  # fmt: skip
        assert float(row["fmr"]) == pytest.approx(same["estimate"].item())
    text = words(page)
    assert "Kendall" in text and "No walk was kept step by step" in text
    assert "walked in 3 ways. Walk 1: generator made:generator, oracle made:oracle, oracle space dataset;" in text
    assert "the label spaces of loss, oracle and accuracy differ (dataset, all, dataset)" in text


def test_settings_in_two_runs_are_compared_too(tmp_path: Path) -> None:
    one = make_walks(tmp_path / "one", frames=1)
    other = make_walks(tmp_path / "other", frames=1, options=[{"generator": "other:generator", "size": 32}], seed=1)
    # Another working size is another original, so the second run has its own.
    rows = other.rows().to_pandas()
    rows["parameters"] = rows["parameters"].astype(str).replace('{"size": 64}', '{"size": 32}')
    rows["row_id"] += "-32"
    for path in other.predictions.paths():
        path.unlink()
    other.predictions.write(pa.Table.from_pandas(rows, schema=other.predictions.schema, preserve_index=False))
    page_of([one, other], tmp_path / "report")
    rows_ = table(tmp_path / "report", "fmr")
    assert [(row["model"], row["walk"]) for row in rows_].count(("timm:first", "2")) == 1
    assert len(rows_) == 4


def test_an_oracle_that_rejects_everything(tmp_path: Path) -> None:
    page = words(page_of([make_walks(tmp_path / "run", validation=0.0)], tmp_path / "report"))
    assert "The FMR of first: the oracle accepted none of its 40 images (VR is 0)" in page
    assert "No accepted image has a distance." in page
    rows = table(tmp_path / "report", "fmr")
    assert rows and all("fmr" not in row and row["reason"] for row in rows), "a column without a value is left out"


def test_a_model_that_is_never_right(tmp_path: Path) -> None:
    page = words(page_of([make_walks(tmp_path / "run", standard=0.0, random_walk=False)], tmp_path / "report"))
    assert "The FMR of first: it answered none of 40 originals rightly (SA is 0)" in page
    assert "The baseline “random walk”: it was not run" in page


def test_walks_that_all_failed(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run", frames=0)
    rows = run.rows().to_pandas().assign(status="error", error="no image came out")
    for path in run.predictions.paths():
        path.unlink()
    run.predictions.write(pa.Table.from_pandas(rows, schema=run.predictions.schema, preserve_index=False))
    page = page_of([run], tmp_path / "report")
    assert sections(page) == ["verdict", "dynamic", *LAST]
    assert "No walk of any image ended" in words(page) and "no image came out" in words(page)


def test_a_run_without_details_or_card_still_has_its_figures(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run", frames=0)
    for path in (tmp_path / "run" / "details").rglob("*.parquet"):
        path.unlink()
    (tmp_path / "run" / "spec.json").write_text('{"dataset": "made", "oracle_cards": ["<b>"], "kinship": 7}')
    page = words(page_of([run], tmp_path / "report"))
    assert "hold no details of their walks" in page and "did not record one" in page
    assert len(table(tmp_path / "report", "fmr")) == 2


def test_frames_outside_the_run_or_broken_are_left_out(tmp_path: Path) -> None:
    run = make_walks(tmp_path / "run", frames=1, models={"timm:first": 0.5})
    (tmp_path / "secret.png").write_bytes((tmp_path / "run" / "frames" / "0.png").read_bytes())
    (tmp_path / "run" / "frames" / "broken.png").write_bytes(b"no picture")
    (tmp_path / "run" / "frames" / "link.png").symlink_to(tmp_path / "secret.png")
    bad = ["../secret.png", str(tmp_path / "secret.png"), "frames/broken.png", "frames/link.png", "", "frames", None]
    parts = Parts(run.path / "details" / "frames", FRAMES)
    rows = parts.rows().to_pylist()
    for place, row in enumerate(rows):
        row["image"] = bad[place % len(bad)]
    for path in parts.paths():
        path.unlink()
    parts.write(pa.Table.from_pylist(rows, schema=FRAMES))
    page = page_of([run], tmp_path / "report")
    assert "data:image/jpeg" not in page
    assert "their files are not in the run folder any more" in words(page)
