"""The section on common corruptions, if there are some."""

from __future__ import annotations

from pathlib import Path

from made_runs import make_run

from holdfast.core.types import CORRUPTIONS
from holdfast.reports.assembly import report_sections
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.sections import ReportEvidence
from holdfast.reports.static.corruptions import _reference, corruptions
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.corruption import ALEXNET, mean_corruption_error

CONDITIONS = ("original", "grey", "fog", "snow", "saturate")


def evidence(path: Path, **options) -> Evidence:
    return Evidence(reduce(make_run(path, **options).rows()), resamples=50)


def test_the_section_has_the_numbers_and_names_its_reference(tmp_path: Path) -> None:
    given = evidence(tmp_path / "run", models=("timm:alexnet", "timm:second"), conditions=CONDITIONS)
    (section,) = corruptions(given)
    expected = mean_corruption_error(given.counts, reference="timm:alexnet", resamples=50).models
    figure, models, detail = section.parts
    assert models.frame.sort_index()["mce"].tolist() == expected["mce"].tolist()
    assert detail.frame["corruption"].tolist() == ["fog", "fog", "saturate", "saturate", "snow", "snow"]
    text = " ".join(section.lead)
    assert "2 corruptions of the fifteen" in text and "the error of alexnet, averaged" in text
    assert "do not compare" in text  # two of fifteen, one severity
    assert "‡" in figure.note and figure.draw(940)["datasets"]["rows"]
    other = evidence(tmp_path / "other", conditions=CONDITIONS)
    worst = mean_corruption_error(other.counts, resamples=50).models.set_index("model")["error"].idxmax()
    assert _reference(other.counts, mean_corruption_error(other.counts, resamples=50).models) == worst


def test_the_whole_of_imagenet_c_is_held_against_the_published_alexnet(tmp_path: Path) -> None:
    from dataclasses import replace

    counts = evidence(tmp_path / "run", models=("one",), photos=2, conditions=CONDITIONS).counts
    whole = [f"{name}@severity_{severity}" for name in CORRUPTIONS for severity in range(1, 6)]
    imagenet = replace(counts, conditions=whole, classes=[f"n{number:08}" for number in range(1000)])
    models = mean_corruption_error(counts, resamples=50).models
    assert _reference(imagenet, models) is ALEXNET
    assert _reference(replace(imagenet, conditions=whole[1:]), models) is None
    assert _reference(replace(imagenet, classes=["cat"] * 1000), models) is None


def test_a_page_has_it_only_where_there_are_corruptions(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", models=("one",), photos=2, conditions=CONDITIONS)
    sections = {section.name: section for section in report_sections(ReportEvidence([run], resamples=50))}
    assert "Published values are over all fifteen" in sections["corruptions"].lead[-1]
    assert not any("mCE is that" in text for text in sections["corruptions"].lead)  # one model: nothing to divide by
    assert corruptions(evidence(tmp_path / "none", conditions=("original", "grey"))) == []
    (only_spare,) = corruptions(evidence(tmp_path / "spare", conditions=("original", "saturate")))
    assert "None of the fifteen" in only_spare.parts[0].text
