"""The chapters of a dossier, made from runs; each adds the facts that maps to standards refer to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError
from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.names import condition_words, without_object
from holdfast.core.numbers import percent, points, span
from holdfast.core.types import CORRUPTIONS, ORIGINAL, SPARE_CORRUPTIONS
from holdfast.core.votes import read_votes
from holdfast.pipeline.metadata import groups_of
from holdfast.stats.effects.families import attribute_errors
from holdfast_evidence.dossier.document import Block, Chapter, Grid
from holdfast_evidence.dossier.evidence import DossierEvidence, DossierRun, Fact, ProtocolDecision, chart, decide, flips

ATTACKS = ("fgsm", "pgd", "strong_attack", "decision_attack")
MOST_ROWS, MOST_SLICES, MOST_ATTRIBUTES = 60, 20, 24
"""Rows of a table, slices and attributes at most; the bundle has all of them."""

LEAST_PHOTOS = 5  # of a slice


def chapters(evidence: DossierEvidence) -> tuple[list[Chapter], dict[str, Fact]]:
    """Return all chapters in order, and the facts in them by name."""
    parts: list[Chapter] = []
    facts: dict[str, Fact] = {}
    for make in (_asked, _system, _data, _protocol, _results, _worst, _limits, _people, _repeat, _glossary):
        chapter, mentioned = make(evidence)
        parts.append(chapter)
        facts |= {name: Fact(text, len(parts)) for name, text in mentioned.items()}
    return parts, facts


Part = tuple[Chapter, dict[str, str]]


def _asked(evidence: DossierEvidence) -> Part:
    question = "Does the model see the object, or rely on everything around it?"
    questions = dict.fromkeys(run.protocol.get("question") or question for run in evidence.runs)
    lines = [_sentence(decision, confirmatory=confirmatory) for decision, confirmatory in _decisions(evidence)]
    nothing = [] if lines else ["Nothing was decided: the runs have no conditions on which a rule could rest."]
    return Chapter("What was asked, and the answer", [*questions, *lines, *nothing]), {}


def _decisions(evidence: DossierEvidence) -> list[tuple[ProtocolDecision, bool]]:
    """Return what was decided, and whether it was declared beforehand and kept to."""
    decided = []
    for run in evidence.runs:
        with suppress(HoldfastError):
            decided += [
                (decision, bool(run.record) and not run.faults) for decision in decide(run.results, run.protocol)
            ]
    return decided


def _sentence(decision: ProtocolDecision, *, confirmatory: bool) -> str:
    margin = f"the margin of {100 * decision.margin:g} points"
    words = {"passed": f"stays below {margin}", "failed": f"exceeds {margin}", "undecided": f"includes {margin}"}
    if decision.decided == "undecided" and decision.low > decision.margin:
        words["undecided"] = f"is not shown to exceed {margin} after correction for {decision.conditions} conditions"
    kind = "Confirmatory" if confirmatory else "Exploratory"
    return (
        f"{kind}: {decision.model} — {decision.decided}. {decision.what[:1].upper()}{decision.what[1:]}: "
        f"{_points(decision.value, decision.low, decision.high)} (n = {decision.n} images), which "
        f"{words[decision.decided]}."
    )


def _points(value: float, low: float, high: float) -> str:
    return f"{points(value)} (95 % interval {span(low, high)})"


def _share(value: float, low: float, high: float) -> str:
    return f"{percent(value)} ({span(low, high)})"


def _system(evidence: DossierEvidence) -> Part:
    rows: list[list[str]] = []
    machines = []
    for run in evidence.runs:
        parameters = run.results.run.spec().get("model_parameters", {})
        for model in run.results.counts.models:
            count = parameters.get(model)
            rows.append([model, f"{count / 1e6:.2f} million" if count else "not recorded", run.name])
        machine = run.results.run.environment()
        packages = ", ".join(f"{name} {number}" for name, number in machine.get("packages", {}).items())
        machines.append(
            f"{run.name}: {machine.get('time', 'time not recorded')}; Python {machine.get('python', '?')}, "
            f"{machine.get('platform', 'platform not recorded')}, {machine.get('cores', '?')} cores, GPU "
            f"{machine.get('gpu') or 'none'}; {packages or 'versions not recorded'}."
        )
    grid = Grid("Models under test", ["Model", "Parameters", "Run"], rows)
    facts = {
        "models": f"{len(evidence.models)} model(s), named with their sizes",
        "versions": "machine and versions of each run",
    }
    licence = "No run records the licence of a model: the party that distributes the model has to state it."
    return Chapter("System and versions", [grid, licence, *machines]), facts


def _data(evidence: DossierEvidence) -> Part:
    samples = evidence.runs[0].results.run.samples()
    table = samples.to_pandas()
    photos = table["source_id"].nunique()
    sizes = table.drop_duplicates("source_id").groupby("label", observed=True).size()
    unread = int((table["problem"].fillna("") != "").sum())
    masked = int((table["mask_fingerprint"].fillna("") != "").sum())
    lines = [
        f"{evidence.dataset}: {photos} images in {len(sizes)} classes ({sizes.min()} to {sizes.max()} per class).",
        f"{masked} of {len(table)} images have a mask; {unread} could not be used.",
    ]
    known = [stored_object(text, "attributes") for text in table["attributes"].dropna() if text]
    confidences = [float(each["mask_confidence"]) for each in known if each.get("mask_confidence") is not None]
    if confidences:
        doubtful = sum(value < 0.5 for value in confidences)
        lines.append(f"Masks were made automatically for {len(confidences)} images; {doubtful} of them are doubtful.")
    facts = {"data": f"{photos} images in {len(sizes)} classes, {masked} with masks"}
    licences = [str(name) for name in pc.unique(samples["licence"]).to_pylist() if name]
    lines.append(f"Licences of the images: {', '.join(licences) or 'the dataset says nothing'}.")
    if licences:
        facts["licences"] = f"images under {', '.join(licences)}"
    return Chapter("Data and masks", [*lines]), facts


def _protocol(evidence: DossierEvidence) -> Part:
    blocks = [block for run in evidence.runs for block in _declared(run)]
    facts = {}
    if all(run.record for run in evidence.runs):
        count = sum(len(run.faults) for run in evidence.runs)
        exploratory = f"a declaration with {count} deviation(s), so exploratory"
        facts["protocol"] = exploratory if count else "declared beforehand, no deviations"
    return Chapter("Protocol and deviations", blocks), facts


def _declared(run: DossierRun) -> list[Block]:
    """Return when and how a run was declared, the protocol, and how the run deviates from it."""
    if run.record is None:
        return [f"{run.name}: no protocol was declared before the measurement, so every result of it is exploratory."]
    declaration = run.record["declaration"]
    signed = "not signed: it can be rewritten by anyone"
    if "signature" in declaration:
        signed = (
            f"signed with the public key {declaration.get('public_key')}: compare it with the one that its owner "
            "published; the owner of the key can choose any time"
        )
    blocks: list[Block] = [
        f"{run.name}: declared {declaration.get('declared', 'at an unknown time')}, begun "
        f"{run.record.get('attached', '?')}; fingerprint {declaration.get('fingerprint') or 'missing'}, {signed}."
    ]
    detectable = declaration.get("detectable")
    if isinstance(detectable, (int, float)):
        blocks.append(
            f"With this number of images a difference of {points(detectable)} is found with the declared power if one "
            "image in ten changes its answer."
        )
    settings = [[key, str(value)] for key, value in run.protocol.items() if value not in (None, "")]
    text = "Deviations: " + ("; ".join(run.faults) if run.faults else "none")
    results = f"{text}. The results are {'exploratory' if run.faults else 'confirmatory'}."
    return [*blocks, Grid(f"Declared protocol of {run.name}", ["Entry", "Value"], settings), results]


def _results(evidence: DossierEvidence) -> Part:
    chapter, facts = Chapter("Results"), {}
    accuracy = evidence.frames(lambda run: run.results.accuracy(outcome=run.outcome))
    if len(accuracy):
        right = "the best of the dataset's classes" if evidence.runs[0].outcome == "restricted" else (
            "the best of all the model's outputs"
        )  # fmt: skip
        header = ["Model", "Condition", "Images", "Accuracy (95 % interval)"]
        grid = Grid("Accuracy, mean over classes", header, _by_condition(accuracy, "accuracy", _share))
        chapter.blocks += [f"An answer is right if {right} is the right one.", grid]
        clean = accuracy[accuracy["condition"] == ORIGINAL]
        if len(clean):
            reach = span(clean["accuracy"].min(), clean["accuracy"].max())
            facts["accuracy"] = f"accuracy on unchanged images {reach} %, with intervals"
    drops = evidence.frames(lambda run: run.results.drops(outcome=run.outcome))
    if len(drops):
        kept = drops[[not without_object(name) for name in drops["condition"]]]
        rows = _by_condition(kept.sort_values("drop", ascending=False), "drop", _points)
        header = ["Model", "Condition", "Images", "Lost"]
        chapter.blocks.append(Grid("Accuracy lost, paired by image, largest first", header, rows))
        worst = kept.iloc[int(kept["drop"].argmax())]
        facts["drops"] = (
            f"largest loss {_points(worst['drop'], worst['low'], worst['high'])}: {worst['model']} under "
            f"{condition_words(worst['condition'])}"
        )
    if len(drops) > MOST_ROWS:
        chapter.blocks.append(f"Tables are cut after {MOST_ROWS} rows; the bundle has all of them.")
    verdicts = evidence.frames(lambda run: run.results.verdicts(outcome=run.outcome, margin=run.margin))
    chapter.blocks += [f"{row['model']}: {row['sentence']}" for row in verdicts.to_dict("records")]
    if len(verdicts) and verdicts["background_effect_high"].notna().any():
        worst = verdicts.iloc[int(verdicts["background_effect_high"].argmax())]
        effect = _points(worst["background_effect"], worst["background_effect_low"], worst["background_effect_high"])
        facts["background"] = f"largest background effect {effect}: {worst['model']}"
    if decisions := _decisions(evidence):
        facts["decision"] = "; ".join(f"{decision.model}: {decision.decided}" for decision, _ in decisions)
    if corrupted := evidence.scenarios & {*CORRUPTIONS, *SPARE_CORRUPTIONS}:
        facts["corruptions"] = f"{len(corrupted)} kinds of corruption"
    if attacks := evidence.scenarios & {*ATTACKS}:
        facts["attacks"] = f"attacks: {', '.join(sorted(attacks))}"
    if evidence.pictures:
        for name, caption in (("verdict", "What each model relies on"), ("drops", "What each condition costs")):
            chapter.blocks += chart(evidence.runs[0], evidence.folder, name, caption)
    return chapter, facts


def _by_condition(frame: pd.DataFrame, value: str, show: Callable[[float, float, float], str]) -> list[list[str]]:
    """Return the first rows as model, condition, number of images, and value with interval."""
    return [
        [row["model"], condition_words(row["condition"]), str(row["n"]), show(row[value], row["low"], row["high"])]
        for row in frame.to_dict("records")[:MOST_ROWS]
    ]


def _worst(evidence: DossierEvidence) -> Part:
    chapter, facts = Chapter("Worst classes, slices and images"), {}
    frame = evidence.frames(lambda run: run.results.accuracy(outcome=run.outcome))
    if len(frame) and "worst_class" in frame:
        rows = [
            [row["model"], condition_words(row["condition"]), str(row["worst_class"]),
             _share(row["worst_class_accuracy"], row["worst_class_low"], row["worst_class_high"])]
            for row in frame.sort_values("worst_class_accuracy").to_dict("records")[:20]
        ]  # fmt: skip
        header = ["Model", "Condition", "Class", "Accuracy (interval allows for picking)"]
        chapter.blocks.append(Grid("Worst class under each condition, lowest first", header, rows))
        facts["classes"] = f"worst class of every condition; lowest {rows[0][2]} under {rows[0][1]}, {rows[0][3]}"
    chapter.blocks += _slices(evidence.runs[0])
    if evidence.pictures:
        chapter.blocks += flips(evidence.runs[0], evidence.folder)
    return chapter, facts


def _slices(run: DossierRun) -> list[Block]:
    """Return the groups of images with one attribute on which models err most, and what was left out."""
    results = run.results
    texts = results.run.samples()["attributes"].to_pylist()
    names = sorted(
        {name for text in texts if text for name in stored_object(text, "attributes") if "seed" not in name} - {"label"}
    )
    tables, left_out = [], names[MOST_ATTRIBUTES:]
    for name in names[:MOST_ATTRIBUTES]:
        try:
            values = groups_of([results.run], [name], None)[name]
        except HoldfastError:  # an attribute with a value for almost every image
            left_out.append(name)
            continue
        if len(set(values.values())) > 1:
            table = attribute_errors(results.counts, values, outcome=run.outcome)
            tables.append(table[table["n"] >= LEAST_PHOTOS].assign(attribute=name))
    if not names:
        return ["The dataset says nothing of its images but their class, so no slices were looked at."]
    slices = pd.concat(tables) if tables else pd.DataFrame()
    blocks: list[Block] = []
    if len(slices):
        rows = [
            [row["model"], f"{row['attribute']} = {row['value']}", str(row["n"]),
             _share(row["error"], row["error_low"], row["error_high"]),
             "there are none" if row["rest"] != row["rest"] else percent(row['rest'])]
            for row in slices.sort_values("error", ascending=False, kind="stable").to_dict("records")[:MOST_SLICES]
        ]  # fmt: skip
        header = ["Model", "Slice", "Images", "Errors (interval)", "Errors on others of these classes"]
        blocks = [Grid(f"Worst of {len(slices)} slices of unchanged images, by attribute", header, rows)]
        blocks.append(
            f"Slices have {LEAST_PHOTOS} images or more. Intervals hold for all slices of one attribute together; the "
            "worst of several attributes is still a pick, to be confirmed on other images."
        )
    if left_out:
        shown = ", ".join(left_out[:8]) + (f" and {len(left_out) - 8} more" if len(left_out) > 8 else "")
        blocks.append(
            f"Attributes that were not looked at, because they have too many values or are too many: {shown}."
        )
    return blocks


def _limits(evidence: DossierEvidence) -> Part:
    families = sorted(evidence.scenarios - {ORIGINAL})
    lines = [
        "Measured is the answer of a model to stored images. Nothing is said about images of another kind, about "
        "cameras, places or classes that are not in the data, or about the product around the model.",
        f"Conditions that were tried: {', '.join(condition_words(name) for name in families) or 'none'}. Others "
        "were not.",
        "Intervals are 95 % intervals over images (and over the donors of pasted backgrounds). They say how far the "
        "numbers would move with other images of the same kind, not how far with images of another kind.",
        "Times of declarations and runs are those of the clock of this machine. Nothing shows that the same images "
        "were not measured elsewhere before; who wants to show it gives the fingerprint of the declaration to a third "
        "party before measuring.",
        "Pasted backgrounds bring artefacts of pasting; the background effect compares two pasted images, so that "
        "these cancel. Masks that lose parts of an object overstate the effect, masks that take in surroundings "
        "understate it.",
    ]
    return Chapter("Limits of what was measured", [*lines]), {"limits": "what was not tried, and what intervals mean"}


def _people(evidence: DossierEvidence) -> Part:
    if evidence.votes is None:
        return Chapter("People's checks", ["No votes of people were given to this dossier (--votes)."]), {}
    from holdfast.stats.people.votes import accept, agreement_of

    votes = read_votes(evidence.votes)
    images = accept(votes)
    share = float((images["decision"] == "accepted").mean()) if len(images) else 0.0
    text = f"{len(images)} images were judged; {percent(share)} of them were accepted."
    agreement = agreement_of(votes)
    numbers = [column for column in agreement if agreement[column].dtype.kind == "f"]
    rows = [
        [f"{row[column]:.3f}" if column in numbers else str(row[column]) for column in agreement]
        for row in agreement.to_dict("records")
    ]
    blocks: list[Block] = [text, Grid("Agreement", [str(column) for column in agreement], rows)]
    return Chapter("People's checks", blocks), {"people": text.rstrip(".")}


def _repeat(evidence: DossierEvidence) -> Part:
    rows = [[name, digest] for name, digest in evidence.bundles.items()]
    lines = [
        "Every answer has a row with an id that follows from image, mask, condition, seed and weights; the same "
        "command makes the same rows. The bundles next to this document hold all of them in open formats.",
        "holdfast share verify FOLDER says whether this document and its bundles belong together; holdfast share "
        "open bundle.zip --out RUN makes a run directory of a bundle; holdfast report RUN makes every number again.",
    ]
    commands = [str(run.results.run.environment().get("command", "")) for run in evidence.runs]
    grid = Grid("Bundles of this dossier", ["File", "SHA-256"], rows)
    asked = [f"Command: {command}" for command in commands if command]
    return Chapter("Reproducibility", [*lines, grid, *asked]), {
        "reproducibility": f"{len(rows)} bundle(s) with all rows, by hash"
    }


TERMS = {
    "Accuracy": "share of right answers; the mean over classes, so that every class weighs the same.",
    "Background effect": "accuracy lost when the background changes from the object's own class to another, both "
    "pasted.",
    "Condition": "what was done to an image before the model saw it; the original is the image as it is.",
    "Confirmatory": "declared with data, models, conditions, margin and rule before anything was measured, and kept "
    "to it.",
    "Donor": "the image that lends its background.",
    "Interval": "range that contains the true value in 95 of 100 such measurements.",
    "Margin": "the largest loss of accuracy that was declared to be acceptable.",
    "Mask": "says which pixels belong to the object.",
}


def _glossary(evidence: DossierEvidence) -> Part:
    rows = [[name, text] for name, text in TERMS.items()]
    return Chapter("Glossary", [Grid("Terms", ["Term", "Meaning"], rows)]), {}
