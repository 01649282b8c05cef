"""The chapters of a dossier, made from runs; each adds the facts that maps to standards refer to."""

from __future__ import annotations

import json

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError
from holdfast.core.lazy import pd
from holdfast.core.names import condition_words, scenario_of, without_object
from holdfast.core.numbers import percent, points, span
from holdfast.core.types import CORRUPTIONS, ORIGINAL, SPARE_CORRUPTIONS
from holdfast.core.votes import read_votes
from holdfast.dossier.document import Chapter, DossierPicture, Grid
from holdfast.dossier.evidence import DossierEvidence, Fact, ProtocolDecision, chart, decide, flips
from holdfast.pipeline.metadata import groups_of
from holdfast.stats.effects.families import attribute_errors

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
    questions = dict.fromkeys(
        evidence.protocol(number).get("question") or "Does the model see the object, or lean on everything around it?"
        for number in range(len(evidence.runs))
    )
    decisions = _decisions(evidence)
    lines = [_sentence(decision, confirmatory=confirmatory) for decision, confirmatory in decisions]
    nothing = [] if lines else ["Nothing was decided: the runs have no conditions on which a rule could rest."]
    return Chapter("What was asked, and the answer", [*questions, *lines, *nothing]), {}


def _decisions(evidence: DossierEvidence) -> list[tuple[ProtocolDecision, bool]]:
    decided = []
    for number, results in enumerate(evidence.runs):
        record = evidence.records[number]
        try:
            own = decide(results, evidence.protocol(number))
        except HoldfastError:
            continue
        decided += [(decision, bool(record) and not evidence.faults[number]) for decision in own]
    return decided


def _sentence(decision: ProtocolDecision, *, confirmatory: bool) -> str:
    margin = f"the margin of {100 * decision.margin:g} points"
    words = {"passed": f"stays below {margin}", "failed": f"exceeds {margin}", "undecided": f"includes {margin}"}
    if decision.decided == "undecided" and decision.low > decision.margin:
        words["undecided"] = f"is not shown to exceed {margin} after correction for {decision.conditions} conditions"
    kind = "Confirmatory" if confirmatory else "Exploratory"
    return (
        f"{kind}: {decision.model} — {decision.decided}. {decision.what[:1].upper()}{decision.what[1:]}: "
        f"{_points(decision.value, decision.low, decision.high)} (n = {decision.n} photos), which "
        f"{words[decision.decided]}."
    )


def _points(value: float, low: float, high: float) -> str:
    return f"{points(value)} (95 % interval {span(low, high)})"


def _share(value: float, low: float, high: float) -> str:
    return f"{percent(value)} ({span(low, high)})"


def _system(evidence: DossierEvidence) -> Part:
    rows: list[list[str]] = []
    machines = []
    for results, spec in zip(evidence.runs, evidence.specs, strict=True):
        parameters = spec.get("model_parameters", {})
        for model in results.counts.models:
            count = parameters.get(model)
            rows.append([model, f"{count / 1e6:.2f} million" if count else "not recorded", results.run.run_id])
        machine = results.run.environment()
        packages = ", ".join(f"{name} {number}" for name, number in machine.get("packages", {}).items())
        machines.append(
            f"{results.run.run_id}: {machine.get('time', 'time not recorded')}; Python {machine.get('python', '?')}, "
            f"{machine.get('platform', 'platform not recorded')}, {machine.get('cores', '?')} cores, GPU "
            f"{machine.get('gpu') or 'none'}; {packages or 'versions not recorded'}."
        )
    grid = Grid("Models under test", ["Model", "Parameters", "Run"], rows)
    facts = {
        "models": f"{len(evidence.models)} model(s), named with their sizes",
        "versions": "machine and versions of each run",
    }
    licence = "No run records the licence of a model: whoever hands on a model has to state it."
    return Chapter("System and versions", [grid, licence, *machines]), facts


def _data(evidence: DossierEvidence) -> Part:
    samples = evidence.runs[0].run.samples()
    table = samples.to_pandas()
    photos = table["source_id"].nunique()
    sizes = table.drop_duplicates("source_id").groupby("label", observed=True).size()
    unread = int((table["problem"].fillna("") != "").sum())
    masked = int((table["mask_fingerprint"].fillna("") != "").sum())
    lines = [
        f"{evidence.dataset}: {photos} photos in {len(sizes)} classes ({sizes.min()} to {sizes.max()} per class).",
        f"{masked} of {len(table)} pictures have a mask; {unread} could not be used.",
    ]
    confidences = [json.loads(text).get("mask_confidence") for text in table["attributes"].dropna() if text]
    confidences = [float(value) for value in confidences if value is not None]
    if confidences:
        doubtful = sum(value < 0.5 for value in confidences)
        lines.append(f"Masks were made automatically for {len(confidences)} pictures; {doubtful} of them are doubtful.")
    facts = {"data": f"{photos} photos in {len(sizes)} classes, {masked} with masks"}
    licences = [str(name) for name in pc.unique(samples["licence"]).to_pylist() if name]
    lines.append(f"Licences of the pictures: {', '.join(licences) or 'the dataset says nothing'}.")
    if licences:
        facts["licences"] = f"pictures under {', '.join(licences)}"
    return Chapter("Data and masks", [*lines]), facts


def _protocol(evidence: DossierEvidence) -> Part:
    chapter, facts = Chapter("Protocol and deviations"), {}
    for results, record, faults in zip(evidence.runs, evidence.records, evidence.faults, strict=True):
        name = results.run.run_id
        if record is None:
            chapter.blocks.append(
                f"{name}: no protocol was declared before the measurement, so every result of it is exploratory."
            )
            continue
        declaration = record["declaration"]
        signed = "not signed: it can be rewritten by anyone"
        if "signature" in declaration:
            signed = (
                f"signed with the public key {declaration.get('public_key')}: compare it with the one that its owner "
                "published; the owner of the key can choose any time"
            )
        detectable = declaration.get("detectable")
        chapter.blocks.append(
            f"{name}: declared {declaration.get('declared', 'at an unknown time')}, begun "
            f"{record.get('attached', '?')}; fingerprint {declaration.get('fingerprint') or 'missing'}, {signed}."
        )
        if isinstance(detectable, (int, float)):
            chapter.blocks.append(
                f"With this number of photos a difference of {points(detectable)} is found with the declared "
                "power if one photo in ten changes its answer."
            )
        settings = [
            [key, str(value)] for key, value in declaration.get("protocol", {}).items() if value not in (None, "")
        ]
        chapter.blocks.append(Grid(f"Declared protocol of {name}", ["Entry", "Value"], settings))
        text = "Deviations: " + "; ".join(faults) if faults else "Deviations: none"
        chapter.blocks.append(f"{text}. The results are {'exploratory' if faults else 'confirmatory'}.")
    if None not in evidence.records:
        count = sum(map(len, evidence.faults))
        exploratory = f"a declaration with {count} deviation(s), so exploratory"
        facts["protocol"] = exploratory if count else "declared beforehand, no deviations"
    return chapter, facts


def _results(evidence: DossierEvidence) -> Part:
    chapter, facts = Chapter("Results"), {}
    accuracy = evidence.frames(lambda results: results.accuracy(outcome=evidence.outcome(results)))
    if len(accuracy):
        clean = accuracy[accuracy["condition"] == ORIGINAL]
        rows = [
            [
                row["model"],
                condition_words(row["condition"]),
                str(row["n"]),
                _share(row["accuracy"], row["low"], row["high"]),
            ]
            for row in accuracy.to_dict("records")[:MOST_ROWS]
        ]
        header = ["Model", "Condition", "Photos", "Accuracy (95 % interval)"]
        chapter.blocks += [_counted(evidence), Grid("Accuracy, mean over classes", header, rows)]
        if len(clean):
            reach = span(clean["accuracy"].min(), clean["accuracy"].max())
            facts["accuracy"] = f"accuracy on unchanged photos {reach} %, with intervals"
    drops = evidence.frames(lambda results: results.drops(outcome=evidence.outcome(results)))
    if len(drops):
        kept = drops[[not without_object(name) for name in drops["condition"]]]
        rows = [
            [
                row["model"],
                condition_words(row["condition"]),
                str(row["n"]),
                _points(row["drop"], row["low"], row["high"]),
            ]
            for row in kept.sort_values("drop", ascending=False).to_dict("records")[:MOST_ROWS]
        ]
        chapter.blocks.append(
            Grid("Accuracy lost, paired by photo, largest first", ["Model", "Condition", "Photos", "Lost"], rows)
        )
        worst = kept.iloc[int(kept["drop"].argmax())]
        facts["drops"] = (
            f"largest loss {_points(worst['drop'], worst['low'], worst['high'])}: {worst['model']} under "
            f"{condition_words(worst['condition'])}"
        )
    if len(drops) and len(drops) > MOST_ROWS:
        chapter.blocks.append(f"Tables are cut after {MOST_ROWS} rows; the bundle has all of them.")
    margins = {id(results): evidence.protocol(n).get("margin", 0.05) for n, results in enumerate(evidence.runs)}
    verdicts = evidence.frames(
        lambda results: results.verdicts(outcome=evidence.outcome(results), margin=float(margins[id(results)]))
    )
    chapter.blocks += [f"{row['model']}: {row['sentence']}" for row in verdicts.to_dict("records")]
    if len(verdicts) and verdicts["background_effect_high"].notna().any():
        worst = verdicts.iloc[int(verdicts["background_effect_high"].argmax())]
        effect = _points(worst["background_effect"], worst["background_effect_low"], worst["background_effect_high"])
        facts["background"] = f"largest background effect {effect}: {worst['model']}"
    decisions = _decisions(evidence)
    if decisions:
        facts["decision"] = "; ".join(f"{decision.model}: {decision.decided}" for decision, _ in decisions)
    names = {scenario_of(name) for name in evidence.conditions}
    if names & {*CORRUPTIONS, *SPARE_CORRUPTIONS}:
        facts["corruptions"] = f"{len(names & {*CORRUPTIONS, *SPARE_CORRUPTIONS})} kinds of corruption"
    if names & {*ATTACKS}:
        facts["attacks"] = f"attacks: {', '.join(sorted(names & {*ATTACKS}))}"
    if evidence.pictures:
        for name, caption in (("verdict", "What each model holds on to"), ("drops", "What each condition costs")):
            chapter.blocks += chart(
                evidence.runs[0], evidence.folder, name, caption, evidence.outcome(evidence.runs[0])
            )
    return chapter, facts


def _counted(evidence: DossierEvidence) -> str:
    """Return which answers count as right."""
    words = {
        "restricted": "the best of the dataset's classes is the right one",
        "full": "the best of all the model's outputs is the right one",
    }
    return f"An answer is right where {words.get(evidence.outcome(evidence.runs[0]), words['full'])}."


def _worst(evidence: DossierEvidence) -> Part:
    chapter, facts = Chapter("Worst classes, slices and pictures"), {}
    frame = evidence.frames(lambda results: results.accuracy(outcome=evidence.outcome(results)))
    if len(frame) and "worst_class" in frame:
        rows = [
            [row["model"], condition_words(row["condition"]), str(row["worst_class"]),
             _share(row["worst_class_accuracy"], row["worst_class_low"], row["worst_class_high"])]
            for row in frame.sort_values("worst_class_accuracy").to_dict("records")[:20]
        ]  # fmt: skip
        header = ["Model", "Condition", "Class", "Accuracy (interval allows for picking)"]
        chapter.blocks.append(Grid("Worst class under each condition, lowest first", header, rows))
        facts["classes"] = f"worst class of every condition; lowest {rows[0][2]} under {rows[0][1]}, {rows[0][3]}"
    chapter.blocks += _slices(evidence)
    if evidence.pictures:
        chapter.blocks += flips(evidence.runs[0], evidence.folder, evidence.outcome(evidence.runs[0]))
    return chapter, facts


def _slices(evidence: DossierEvidence) -> list[str | Grid | DossierPicture]:
    """Return the groups of photos with one attribute on which models err most, and what was left out."""
    results = evidence.runs[0]
    texts = results.run.samples()["attributes"].to_pylist()
    names = sorted({name for text in texts if text for name in json.loads(text) if "seed" not in name} - {"label"})
    tables, left_out = [], names[MOST_ATTRIBUTES:]
    for name in names[:MOST_ATTRIBUTES]:
        try:
            values = groups_of([results.run], [name], None)[name]
        except HoldfastError:  # an attribute with a value for almost every photo
            left_out.append(name)
            continue
        if len(set(values.values())) > 1:
            table = attribute_errors(results.counts, values, outcome=evidence.outcome(results))
            tables.append(table[table["n"] >= LEAST_PHOTOS].assign(attribute=name))
    if not names:
        return ["The dataset says nothing of its photos but their class, so no slices were looked at."]
    slices = pd.concat(tables) if tables else pd.DataFrame()
    blocks: list[str | Grid | DossierPicture] = []
    if len(slices):
        rows = [
            [row["model"], f"{row['attribute']} = {row['value']}", str(row["n"]),
             _share(row["error"], row["error_low"], row["error_high"]),
             "there are none" if row["rest"] != row["rest"] else percent(row['rest'])]
            for row in slices.sort_values("error", ascending=False, kind="stable").to_dict("records")[:MOST_SLICES]
        ]  # fmt: skip
        header = ["Model", "Slice", "Photos", "Errors (interval)", "Errors on others of these classes"]
        blocks = [Grid(f"Worst of {len(slices)} slices of unchanged photos, by attribute", header, rows)]
        blocks.append(
            f"Slices have {LEAST_PHOTOS} photos or more. Intervals hold for all slices of one attribute together; the "
            "worst of several attributes is still a pick, to be confirmed on other photos."
        )
    if left_out:
        shown = ", ".join(left_out[:8]) + (f" and {len(left_out) - 8} more" if len(left_out) > 8 else "")
        blocks.append(
            f"Attributes that were not looked at, because they have too many values or are too many: {shown}."
        )
    return blocks


def _limits(evidence: DossierEvidence) -> Part:
    families = sorted({scenario_of(name) for name in evidence.conditions} - {ORIGINAL})
    lines = [
        "Measured is the answer of a model to stored pictures. Nothing is said about pictures of another kind, about "
        "cameras, places or classes that are not in the data, or about the product around the model.",
        f"Conditions that were tried: {', '.join(condition_words(name) for name in families) or 'none'}. Others "
        f"were not.",
        "Intervals are 95 % intervals over photos (and over the donors of pasted backgrounds). They say how far the "
        "numbers would move with other photos of the same kind, not how far with photos of another kind.",
        "Times of declarations and runs are those of the clock of this machine. Nothing shows that the same photos "
        "were not measured elsewhere before; who wants to show it gives the fingerprint of the declaration to a third "
        "party before measuring.",
        "Pasted backgrounds bring artefacts of pasting; the background effect compares two pasted pictures, so "
        "that these "
        "cancel. Masks that lose parts of an object overstate the effect, masks that take in surroundings "
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
    text = f"{len(images)} pictures were judged; {percent(share)} of them were accepted."
    agreement = agreement_of(votes)
    numbers = [column for column in agreement if agreement[column].dtype.kind == "f"]
    rows = [
        [f"{row[column]:.3f}" if column in numbers else str(row[column]) for column in agreement]
        for row in agreement.to_dict("records")
    ]
    blocks: list[str | Grid | DossierPicture] = [text, Grid("Agreement", [str(column) for column in agreement], rows)]
    return Chapter("People's checks", blocks), {"people": text.rstrip(".")}


def _repeat(evidence: DossierEvidence) -> Part:
    rows = [[name, digest] for name, digest in evidence.bundles.items()]
    lines = [
        "Every answer has a row with an id that follows from picture, mask, condition, seed and weights; the same "
        "command "
        "makes the same rows. The bundles beside this document hold all of them in open formats.",
        "holdfast verify FOLDER says whether this document and its bundles belong together; holdfast open "
        "bundle.zip --out "
        "RUN makes a run directory of a bundle; holdfast report RUN makes every number again.",
    ]
    commands = [str(results.run.environment().get("command", "")) for results in evidence.runs]
    grid = Grid("Bundles of this dossier", ["File", "SHA-256"], rows)
    blocks: list[str | Grid | DossierPicture] = [
        *lines,
        grid,
        *(f"Command: {command}" for command in commands if command),
    ]
    return Chapter("Reproducibility", blocks), {"reproducibility": f"{len(rows)} bundle(s) with all rows, by hash"}


TERMS = {
    "Accuracy": "share of right answers; the mean over classes, so that every class weighs the same.",
    "Background effect": "accuracy lost when the background changes from the object's own class to "
    "another, both pasted.",
    "Condition": "what was done to a photo before the model saw it; the original is the photo as it is.",
    "Confirmatory": "declared with data, models, conditions, margin and rule before anything was "
    "measured, and kept to it.",
    "Donor": "the photo that lends its background.",
    "Interval": "range that contains the true value in 95 of 100 such measurements.",
    "Margin": "the largest loss of accuracy that was declared to be acceptable.",
    "Mask": "says which pixels belong to the object.",
}


def _glossary(evidence: DossierEvidence) -> Part:
    rows = [[name, text] for name, text in TERMS.items()]
    return Chapter("Glossary", [Grid("Terms", ["Term", "Meaning"], rows)]), {}
