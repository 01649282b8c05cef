"""Parity: does an exported model still answer as its original does, condition by condition, image by image?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.stats.core.answers import named_conditions
from holdfast.stats.core.cells import summary
from holdfast.stats.core.reduce import Counts, Outcome, reduce
from holdfast.stats.models.gate import Gate, gate

ParityVerdict = Literal["equivalent", "different", "undecided"]
KEY = ["sample_id", "condition", "variant", "parameters", "seed", "fold", "trained_on"]
"""Columns that name an image; the hash of its pixels has to agree, too."""


@dataclass(frozen=True)
class Parity:
    """Whether two models are the same.

    ``conditions``: a row per condition: ``flips``, the share of images with two answers, with ``flips_low`` and
    ``flips_high`` (95 %), ``flipped`` and ``n``; accuracies ``old`` and ``new``, their ``difference`` with ``low`` and
    ``high`` (one-sided 95 % bounds, whatever the margin), images ``lost`` and ``gained``, ``verdict`` ('' if the
    object is gone), and ``more_photos`` that would decide.
    """

    verdict: ParityVerdict  # equivalent if every condition is, different if one is, else undecided
    conditions: pd.DataFrame
    flips: pd.DataFrame  # a row per image with two answers, those that the new model lost first
    margin: float  # the difference of accuracies that still counts as equal, 0..1
    sentence: str  # all of it in one

    def __repr__(self) -> str:
        return f"Parity({self.sentence!r}, {len(self.conditions)} conditions)"


def parity(
    rows: pa.Table, counts: Counts, old: str, new: str, *, margin: float = 0.02, outcome: Outcome = "full"
) -> Parity:
    """Test paired equivalence of two models of a run, and count the images that they answer differently.

    Two one-sided tests per condition, those of the release gate, once in each direction: both have to reject that the
    accuracies differ by the margin. Conditions are joined by "and", so that each is tested at 5 % without correction.
    A condition is different if one direction fails the gate at 2.5 %, Holm-corrected over conditions.

    Flips are counted with the intervals of ``summary``: agreement is an accuracy whose truth is the other model. The
    rows are those of the one table; ``counts`` are their counts.
    """
    for name in (old, new):
        if name not in counts.models:
            errors = counts.trouble.loc[counts.trouble["model"] == name, "error"]
            why = errors.iloc[0] if len(errors) else f"it has {', '.join(counts.models)}"
            raise UserError(f"{name} has no answers in this run, so there is nothing to compare: {why}")
    paired = _paired(rows, old, new, "" if outcome == "full" else "_restricted")
    # the pairs as rows of one model that is right if the two agree
    agree = paired.assign(correct=~paired["flip"], correct_restricted=~paired["flip"])
    counted = reduce(pa.Table.from_pandas(agree, preserve_index=False), order=counts.conditions)
    agreement = summary(counted, outcome=outcome, average="micro")
    gates = [
        gate(counts, counts, old_model=a, new_model=b, margin=margin, outcome=outcome)
        for a, b in ((old, new), (new, old))
    ]
    table = _conditions(agreement, gates)
    flips = paired[paired["flip"]].sort_values(
        ["lost", "gained", "name", "sample_id"], ascending=[False, False, True, True]
    )
    flips = flips.drop(columns=["flip"]).reset_index(drop=True)
    verdicts = [verdict for verdict in table["verdict"] if verdict]
    overall: ParityVerdict = "undecided"
    if "different" in verdicts:
        overall = "different"
    elif verdicts and set(verdicts) == {"equivalent"}:
        overall = "equivalent"
    return Parity(overall, table, flips, margin, _sentence(overall, table, margin))


def _paired(rows: pa.Table, old: str, new: str, suffix: str) -> pd.DataFrame:
    """Return a row per image that both models answered: the new one's, with both answers and whether they differ."""
    answered = rows.filter((pc.field("status") == "ok") & (pc.field("task") == "classify")).to_pandas()
    sides = [answered[answered["model"] == name].astype({"sample_id": str}) for name in (old, new)]
    answer, right = f"prediction{suffix}", f"correct{suffix}"
    before = sides[0][[*KEY, "image_sha256", answer, right, f"confidence{suffix}"]]
    merged = sides[1].merge(before, on=KEY, suffixes=("", "_old"))
    same = merged["image_sha256"].isna() | (merged["image_sha256"] == merged["image_sha256_old"])
    merged = merged[same].reset_index(drop=True)  # the images of an attack differ from model to model
    words = merged[[answer, f"{answer}_old"]].astype(object)
    flip = words[answer].fillna("") != words[f"{answer}_old"].fillna("")
    was, now = merged[f"{right}_old"].astype(bool), merged[right].astype(bool)
    paired: pd.DataFrame = merged.assign(name=named_conditions(merged), flip=flip, lost=was & ~now, gained=now & ~was)
    return paired


def _conditions(agreement: pd.DataFrame, gates: list[Gate]) -> pd.DataFrame:
    forward, backward = (side.conditions.set_index("condition") for side in gates)
    rows: list[dict[str, Any]] = []
    for row in agreement.to_dict("records"):
        name = row["condition"]
        entry = {
            "condition": name, "n": row["n"], "flipped": round((1 - row["accuracy"]) * row["n"]),
            "flips": 1 - row["accuracy"], "flips_low": 1 - row["high"], "flips_high": 1 - row["low"], "verdict": "",
        }  # fmt: skip
        if name in forward.index and name in backward.index:
            ahead, back = forward.loc[name], backward.loc[name]
            p_pass, p_fail = (max(ahead["p_pass"], back["p_pass"]), 2 * min(ahead["p_fail"], back["p_fail"]))
            entry |= {key: ahead[key] for key in ("old", "new", "difference")}
            entry |= {"low": ahead["low"], "high": ahead["high"], "lost": ahead["worse"], "gained": ahead["better"]}
            entry["verdict"] = "equivalent" if p_pass <= 0.05 else "different" if p_fail <= 0.05 else "undecided"
            entry["p"] = p_pass
            if entry["verdict"] == "undecided":
                entry["more_photos"] = np.nanmax([ahead["more_photos"], back["more_photos"], -1])
        rows.append(entry)
    order = ["condition", "n", "flipped", "flips", "flips_low", "flips_high", "old", "new", "difference", "low", "high",
             "lost", "gained", "p", "verdict", "more_photos"]  # fmt: skip
    table = pd.DataFrame(rows).reindex(columns=order)
    table["more_photos"] = table["more_photos"].where(table["more_photos"] >= 0)
    return table


def _sentence(verdict: ParityVerdict, table: pd.DataFrame, margin: float) -> str:
    tested = table[table["verdict"] != ""]
    allowed = f"{100 * margin:g} points"
    names = ", ".join(tested.loc[tested["verdict"] == verdict, "condition"].head(4))
    worst = table.iloc[int(table["flips"].to_numpy().argmax())]
    flips = f"No answer flips under any of {len(table)} conditions."
    if worst["flipped"]:
        flips = f"Most flips: {worst['flipped']} of {worst['n']} answers under {worst['condition']}."
    if verdict == "equivalent":
        return f"Equivalent: accuracy differs by less than {allowed} under each of {len(tested)} conditions. {flips}"
    if verdict == "different":
        return f"Different: accuracy differs by more than {allowed} under {names}. {flips}"
    count = int((tested["verdict"] == "undecided").sum())
    more = tested["more_photos"].max()
    ask = f"; some {more:.0f} more images would decide" if more == more else ""
    return f"Undecided at {allowed} under {count} of {len(tested)} conditions{ask}. {flips}"
