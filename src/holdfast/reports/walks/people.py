"""Section: FMR if only images that people confirm count as validated."""

from __future__ import annotations

from typing import Any

from holdfast.core.lazy import pd
from holdfast.core.numbers import estimate, percent
from holdfast.core.votes import Votes
from holdfast.reports.page import charts
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Notice, Section, Text
from holdfast.reports.page.sections import ReportEvidence
from holdfast.reports.page.tables import CLASS, Column, Table, plain
from holdfast.reports.page.words import plural
from holdfast.reports.walks.evidence import ReportWalks, walk_section
from holdfast.stats.walks.fmr_people import COLUMNS, fmr_corrected, judged_walks

TITLE = "As far as people agree, too"
MEANING = (
    "An oracle errs, and a walk that fools the model may have fooled it as well. Here an image that the oracle "
    "accepted counts as validated only if people confirm its class; the others count as not validated."
)
ASSUMED = (
    "If people judged a sample, the judged images of a class, those the model gets right and those it gets wrong "
    "each by themselves, are taken as a random sample of the accepted ones; people's verdict is taken as the truth, "
    "and what the oracle rejected stays rejected. Intervals resample images, judged or not."
)


def corrected_by_people(walks: ReportWalks, votes: Votes, *, resamples: int, seed: int) -> Section:
    """Return the oracle's false accepts, and VR, PA and FMR without them; ``votes`` are on the accepted images."""
    number = dict(zip(walks.images["parameters"], walks.images["walk"], strict=True))
    judged = judged_walks(walks.rows.select(COLUMNS), votes)
    section = Section("people", TITLE, lead=[MEANING])
    if not judged["confirmed"].notna().any():
        section.parts = [Notice(f"The votes of “{votes.campaign}” are about none of the accepted images.")]
        return section
    table = fmr_corrected(judged, resamples=resamples, seed=seed)
    table["walk"] = table["parameters"].map(number)
    table["row"] = [walks.row(model, walk) for model, walk in zip(table["model"], table["walk"], strict=True)]
    pooled = table[table["label"] == ""]
    section.lead += _findings(pooled)
    rows = [walks.row(model, walk) for model, walk in walks.order]
    section.parts = [_figure(pooled, walks, rows), _table("fmr_people", pooled), Text([ASSUMED])]
    by_class = table[(table["label"] != "") & (table["judged"] > 0)]
    if len(by_class):
        section.parts.append(_table("fmr_people_by_class", by_class))
    return section


def _findings(pooled: pd.DataFrame) -> list[str]:
    findings = []
    for row, group in pooled.groupby("row", sort=False):
        by = {record["measure"]: record for record in group.to_dict("records")}
        wrong, new = by["false_accepts"], by["fmr"]
        judged = f"people judged {int(wrong['judged']):,} of {plural(int(wrong['validated']), 'accepted image')}"
        if wrong["reason"]:
            findings.append(f"{row}: {judged}; no corrected value, because {wrong['reason']}.")
            continue
        findings.append(
            f"{row}: {judged} and do not confirm {estimate(wrong['estimate'], wrong['low'], wrong['high'])}; FMR "
            f"{percent(new['by_oracle'])} by the oracle alone, {estimate(new['estimate'], new['low'], new['high'])} "
            "corrected."
        )
    return findings


def _figure(pooled: pd.DataFrame, walks: ReportWalks, rows: list[str]) -> Figure:
    corrected = pooled[pooled["measure"] == "fmr"]
    plain = walks.family[(walks.family["label"] == "") & (walks.family["measure"] == "fmr")]
    plain = plain.assign(
        row=[walks.row(model, walk) for model, walk in zip(plain["model"], plain["walk"], strict=True)]
    )
    kinds = {"by the oracle alone": plain, "confirmed by people": corrected[corrected["reason"] == ""]}
    columns = ["row", "estimate", "low", "high"]
    frame = pd.concat([part[columns].assign(model=kind) for kind, part in kinds.items()], ignore_index=True)
    frame["high"] = frame["high"].clip(upper=1.2)
    records = corrected.to_dict("records")
    changes = [f"{row['row']} {percent(row['by_oracle'])} → {percent(row['estimate'])}" for row in records]
    title, domain = "FMR by the oracle alone, and where people confirm", (0, max(1.0, float(frame["high"].max())))
    order: dict[str, Any] = {"models": list(kinds), "rows": rows}
    return charts.dot_figure("fmr_people", title, "; ".join(changes), frame, axis="FMR", domain=domain, **order)


def _table(name: str, frame: pd.DataFrame) -> Table:
    words = {"false_accepts": "False accepts", "validation_rate": "VR", "perturbed_accuracy": "PA", "fmr": "FMR"}
    by_class = bool((frame["label"] != "").any())
    columns = [
        Column("row", "Model"),
        *([CLASS] if by_class else []),
        Column("measure", "Measure", show=lambda value: words[value]),
        Column("by_oracle", "By the oracle", "percent"),
        Column("estimate", "Confirmed by people", "percent", "low", "high"),
        *plain("integer", validated="Accepted", judged="judged", confirmed="confirmed"),
        *([Column("reason", "Why there is none")] if (frame["reason"] != "").any() else []),
    ]
    caption = "With people's verdicts" + (", by class" if by_class else "")
    return Table(name, caption, frame, columns, folded=by_class)


def _people(report: ReportEvidence, walks: ReportWalks) -> Section:
    assert report.votes is not None
    return corrected_by_people(walks, report.votes, **report.resampling)


PEOPLE = walk_section(_people, lambda report: report.votes is not None)
