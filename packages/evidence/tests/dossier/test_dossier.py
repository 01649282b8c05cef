"""A dossier of a declared run: what is said, and that forged, late and changed evidence is named."""

import json
import re
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typst

import holdfast
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.pipeline.declaration import attached, deviations, read_declaration, row_deviations
from holdfast.results import open_run
from holdfast.store import write_table
from holdfast_evidence.bundle import bundle
from holdfast_evidence.dossier.assembly import check_seal
from holdfast_evidence.dossier.chapters import _sentence
from holdfast_evidence.dossier.document import Chapter, Document, Grid, as_text
from holdfast_evidence.dossier.evidence import ProtocolDecision, decide
from holdfast_evidence.opening import open_bundle

DATA, MODEL = "diorama:test?n=24", "embedded:resnet_rho0?name=a*b_#[c]$"
CONDITIONS = ["original", "random_background", "same_class_background"]


def protocol_file(folder, **values):
    entries = {"data": DATA, "models": [MODEL], "scenarios": CONDITIONS, "margin": 0.3} | values
    path = folder / "protocol.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in entries.items()))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("declared")
    key = folder / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    holdfast.audit_declare(protocol_file(folder), folder / "declaration.json", key=key)
    holdfast.evaluate(
        DATA, models=[MODEL], scenarios=",".join(CONDITIONS), protocol=folder / "declaration.json", out=folder / "run"
    )
    (folder / "own.toml").write_text(
        '[[item]]\nclause = "1"\nasks = "<b>that</b> | it"\nneeds = ["drops"]\n'
        '[[item]]\nclause = "2"\nneeds = ["moon"]\n'
    )
    maps = ["iso-24029", "ai-act-15", "model-card", "neurips-checklist", str(folder / "own.toml")]
    holdfast.audit_dossier([folder / "run"], folder / "dossier", standards=maps)
    return folder


def record_of(place):
    return attached(open_run(place / "run").run)


def test_a_run_as_declared_is_confirmatory(place):
    assert deviations(record_of(place)) == []
    (decision,) = decide(open_run(place / "run"), record_of(place)["declaration"]["protocol"])
    effect = open_run(place / "run").verdicts().iloc[0]
    assert (decision.low, decision.high) == (effect["background_effect_low"], effect["background_effect_high"])
    assert decision.decided == "passed" and decision.margin == 0.3
    page = (place / "dossier" / "dossier.html").read_text()
    assert "Confirmatory: a*b_#[c]$ — passed." in page and "&lt;b&gt;that&lt;/b&gt;" in page
    assert "Not measured here, because these runs have no moon." in page
    assert (place / "dossier" / "dossier.pdf").read_bytes().startswith(b"%PDF")
    assert "a\\*b\\_\\#\\[c\\]$" in (place / "dossier" / "dossier.md").read_text()


def test_slices_by_attribute_and_what_is_not_known(place, tmp_path):
    page = (place / "dossier" / "dossier.html").read_text()
    assert "slices of unchanged images, by attribute" in page and "Errors on others" in page
    assert "No run records the licence of a model" in page
    subprocess.run(["cp", "-r", place / "run", tmp_path / "walks"], check=True)
    spec = json.loads((tmp_path / "walks" / "spec.json").read_text())
    (tmp_path / "walks" / "spec.json").write_text(json.dumps(spec | {"verb": "perturb"}))
    with pytest.raises(UserError, match="runs of eval"):
        holdfast.audit_dossier([tmp_path / "walks"], tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_thousands_of_slices_are_named_in_few_words(place, tmp_path):
    subprocess.run(["cp", "-r", place / "run", tmp_path / "run"], check=True)
    path = tmp_path / "run" / "samples.parquet"
    samples = pq.read_table(path)
    many = [json.dumps({f"column {n}": f"value {n * place}" for n in range(3000)}) for place in range(len(samples))]
    at = samples.schema.get_field_index("attributes")
    write_table(path, samples.set_column(at, samples.schema.field(at), pa.array(many, samples.schema.field(at).type)))
    holdfast.audit_dossier([tmp_path / "run"], tmp_path / "dossier")
    text = (tmp_path / "dossier" / "dossier.md").read_text()
    assert "column 1" in text and re.search(r"and 29\d\d more", text) and len(text) < 60_000


def test_a_map_names_chapter_and_page(tmp_path):
    words = [["a (chapter 2). b"], [""]]
    document = Document("t", "s", [Chapter("One", [Grid("map", ["x"], words)]), Chapter("Two", ["y"])], [])
    source = as_text(document, "typ")
    assert source.count("<chapter-2>") == 3 and '" (chapter 2, page "' in source
    assert typst.compile(source.encode(), format="svg")  # which fails if a chapter that is named is not there


@pytest.mark.parametrize(("margin", "decided"), [(0.9, "passed"), (1e-6, "undecided")])
def test_every_condition_has_to_pass(place, margin, decided):
    (decision,) = decide(open_run(place / "run"), {"rule": "every-condition", "margin": margin})
    assert decision.decided == decided and "the worst of 2 conditions" in decision.what


def changed(record, **parts):
    return json.loads(json.dumps(record)) | parts


def test_every_deviation_is_named(place):
    record = record_of(place)
    declaration = record["declaration"]

    def faults(**parts):
        return " ".join(deviations(changed(record, **parts)))

    forged = changed(declaration, protocol=declaration["protocol"] | {"margin": 0.9})
    assert "changed after it was written" in faults(declaration=forged)
    contents = {name: value for name, value in forged.items() if name not in ("fingerprint", "signature", "public_key")}
    rewritten = forged | {"fingerprint": fingerprint(contents)}
    assert "signature does not belong" in faults(declaration=rewritten)
    assert "clock was set back" in faults(attached="2020-01-01T00:00:00+00:00")
    assert "3 answers were there before" in faults(rows_before=3)
    assert "data are not those" in faults(data={"sha256": "0" * 64})
    assert "was declared and not measured" in faults(models={}) and "not declared" in faults(models={"other": "x"})
    assert "other weights" in faults(models=dict.fromkeys(record["models"], "x"))
    assert "fog was measured and not declared" in faults(conditions=[*record["conditions"], "fog"])
    assert "seed" in faults(seed=5)
    assert "feather is 5.0, not as declared" in faults(settings=record["settings"] | {"feather": 5.0})
    assert "backgrounds is 'sea'" in faults(settings=record["settings"] | {"backgrounds": "sea"})


def test_rows_are_held_against_the_declaration(place, tmp_path):
    run = open_run(place / "run").run
    assert row_deviations(run, record_of(place)) == []
    subprocess.run(["cp", "-r", place / "run", tmp_path / "later"], check=True)
    more = ",".join([*CONDITIONS, "grey"])
    holdfast.evaluate(
        DATA, models=["embedded:resnet_rho95?name=A"], scenarios=more, matte="black", out=tmp_path / "later"
    )
    later = attached(open_run(tmp_path / "later").run)
    assert "A was measured and not declared" in deviations(later)  # by a command without protocol
    assert "matte is [0, 0, 0], not as declared" in deviations(later)
    (tmp_path / "later" / "protocol.json").write_text((place / "run" / "protocol.json").read_text())
    faults = " ".join(row_deviations(open_run(tmp_path / "later").run, record_of(place)))
    assert "answers of A, which was" in faults and "answers under grey, which was not" in faults
    holdfast.audit_dossier([tmp_path / "later"], tmp_path / "d", pictures=False, standards=["ai-act-15"])
    page = (tmp_path / "d" / "dossier.html").read_text()
    verdicts = open_run(tmp_path / "later").verdicts().set_index("model")["background_effect_high"]
    assert verdicts.idxmax() != verdicts.index[0]
    assert re.search(f"largest background effect [^:]*: {re.escape(verdicts.idxmax())} ", page)
    assert "Confirmatory:" not in page and "Deviations: there are answers of A" in page


def test_a_run_that_stopped_is_not_as_declared(place, tmp_path):
    subprocess.run(["cp", "-r", place / "run", tmp_path / "run"], check=True)
    run = open_run(tmp_path / "run").run
    rows = run.rows()
    sources = sorted(set(rows["source_id"].to_pylist()))[:8]
    for path in run.predictions.paths():
        path.unlink()
    kept = rows.filter(pa.compute.is_in(rows["source_id"], pa.array(sources)))
    write_table(tmp_path / "run" / "predictions" / "part-00000.parquet", kept)
    (fault,) = row_deviations(open_run(tmp_path / "run").run, record_of(place))
    assert "fewer images than declared under original (8 of 24), random_background (8 of 24)" in fault


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": {"data": DATA, "models": [MODEL], "margin": "big"}},
        {"protocol": [1]},
        {"data": "x"},
        {"conditions": 5},
        {"models": "x"},
    ],
)
def test_a_tampered_record_is_reported_as_changed(place, tmp_path, change):
    subprocess.run(["cp", "-r", place / "run", tmp_path / "run"], check=True)
    record = record_of(place)
    record["declaration"] |= change
    (tmp_path / "run" / "protocol.json").write_text(json.dumps(record))
    faults = deviations(attached(open_run(tmp_path / "run").run))
    assert any("changed after it was written" in fault for fault in faults)
    holdfast.audit_dossier([tmp_path / "run"], tmp_path / "d", pictures=False)
    assert "The results are exploratory" in (tmp_path / "d" / "dossier.html").read_text()


def test_other_data_is_exploratory(place, tmp_path):
    declaration = place / "declaration.json"
    holdfast.evaluate(
        "diorama:test?n=12", models=[MODEL], scenarios="original,grey", protocol=declaration, out=tmp_path / "r"
    )
    faults = deviations(attached(open_run(tmp_path / "r").run))
    assert any("data are not those" in fault for fault in faults) and any("grey" in fault for fault in faults)
    holdfast.audit_dossier([tmp_path / "r"], tmp_path / "d", pictures=False, standards=["iso-24029"])
    page = (tmp_path / "d" / "dossier.html").read_text()
    assert re.search(r"a declaration with [4-9] deviation\(s\), so exploratory", page)
    assert "Nothing was decided" in page and "nan points" not in page  # there are no pasted backgrounds
    assert "The results are exploratory" in page and "Confirmatory:" not in page


def test_a_bundle_carries_the_declaration(place, tmp_path):
    open_bundle(place / "dossier" / "bundle.zip", tmp_path / "opened")
    run = open_run(tmp_path / "opened").run
    assert attached(run)["declaration"] == json.loads((place / "declaration.json").read_text())
    assert deviations(attached(run)) == row_deviations(run, attached(run)) == []
    renamed = changed(record_of(place), models={"m": "1"}, renamed={"a*b_#[c]$": "m"})
    assert not any("not declared" in fault for fault in deviations(renamed))  # a path that the bundle cut
    holdfast.audit_dossier([tmp_path / "opened"], tmp_path / "d", pictures=False, standards=["iso-24029", "ai-act-15"])
    page = (tmp_path / "d" / "dossier.html").read_text()
    assert "Confirmatory: a*b_#[c]$" in page and "Partly: measured once, before release" in page
    public_key = attached(run)["declaration"]["public_key"]
    assert f"public key {public_key}: compare it with the one that its owner published" in page
    assert "to a third party before measuring" in page


def test_a_declared_folder_is_still_as_declared_in_a_bundle(place, tmp_path):
    subprocess.run(["cp", "-r", place / "run", tmp_path / "run"], check=True)
    record = record_of(place)
    folder = str(tmp_path / "seas")
    own = {name: record["declaration"][name] for name in record["declaration"] if "sign" not in name}
    own = {name: value for name, value in own.items() if name not in ("fingerprint", "public_key")}
    own["protocol"] |= {"backgrounds": folder}
    record["settings"] |= {"backgrounds": folder, "fill": f"migan:{tmp_path}/x.onnx"}
    record["declaration"] = own | {"fingerprint": fingerprint(own)}
    (tmp_path / "run" / "protocol.json").write_text(json.dumps(record))
    bundle(tmp_path / "run", tmp_path / "b.zip", report=False)
    open_bundle(tmp_path / "b.zip", tmp_path / "opened")
    assert deviations(attached(open_run(tmp_path / "opened").run)) == ["fill is 'migan:x.onnx', not as declared"]


def test_runs_of_different_data_are_refused(place, tmp_path):
    subprocess.run(["cp", "-r", place / "run", tmp_path / "other"], check=True)
    spec = json.loads((tmp_path / "other" / "spec.json").read_text())
    (tmp_path / "other" / "spec.json").write_text(json.dumps(spec | {"dataset": "sea"}))
    with pytest.raises(UserError, match="a dossier is of one dataset, and these runs have"):
        holdfast.audit_dossier([place / "run", tmp_path / "other"], tmp_path / "d")


def test_undecided_after_correction_is_not_called_included():
    decision = ProtocolDecision("m", "undecided", "accuracy lost", 24, 0.2, 0.11, 0.3, 0.1, 15)
    sentence = _sentence(decision, confirmatory=True)
    assert "is not shown to exceed the margin of 10 points after correction for 15 conditions" in sentence


def test_changed_files_and_foreign_documents_are_found(place, tmp_path):
    assert check_seal(place / "dossier") == []
    subprocess.run(["cp", "-r", place / "dossier", tmp_path / "copy"], check=True)
    (tmp_path / "copy" / "dossier.md").write_text("better numbers")
    assert check_seal(tmp_path / "copy") == ["dossier.md was changed"]
    seal = json.loads((tmp_path / "copy" / "seal.json").read_text())
    seal["bundles"]["bundle.zip"] = seal["files"]["bundle.zip"] = "1" * 64
    (tmp_path / "copy" / "seal.json").write_text(json.dumps(seal))
    assert any("do not belong together" in fault for fault in check_seal(tmp_path / "copy"))
    (tmp_path / "copy" / "seal.json").write_text('{"files": {}, "bundles": {}}')
    faults = check_seal(tmp_path / "copy")
    assert any("not a whole seal" in fault for fault in faults) and "bundle.zip is not part of the dossier" in faults


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("models = ['a']", "names no data"),
        ("data = 'x'\nmodels = ['a']\nmargn = 1", "margin"),
        ("data = 'x'\nmodels = ['a']\nmargin = 7", "between 0 and 1"),
        ("data = 'x'\nmodels = ['a']\nrule = 'luck'", "rule"),
        ("data = [", "cannot be read as TOML"),
        ("data = 'x'\nmodels = [1]", "models is a list of texts"),
        ("data = 'x'\nmodels = ['a']\nscenarios = [1]", "scenarios is a text or a list of texts"),
        ("data = 'x'\nmodels = ['a']\nlimit = 'ten'", "limit is a whole number"),
        ("data = 'x'\nmodels = ['a']\nseed = 1.5", "seed is a whole number"),
        ("data = 'x'\nmodels = ['a']\nmargin = 'big'", "margin is a number"),
        ("data = 'x'\nmodels = ['a']\noutcome = 'best'", "outcome"),
        ("data = 'x'\nmodels = ['a']\nquestion = 5", "question is a text"),
    ],
)
def test_bad_protocols_get_a_sentence(tmp_path, text, sentence):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        holdfast.audit_declare(tmp_path / "p.toml", tmp_path / "d.json")


def test_bad_calls_get_a_sentence(place, tmp_path):
    with pytest.raises(UserError, match="not changed afterwards"):
        holdfast.audit_declare(protocol_file(place), place / "declaration.json")
    with pytest.raises(UserError, match="is not a declaration"):
        (tmp_path / "x.json").write_text("{}")
        read_declaration(tmp_path / "x.json")
    with pytest.raises(UserError, match="iso-24029"):
        holdfast.audit_dossier([place / "run"], tmp_path / "d", standards=["iso-24028"])
    with pytest.raises(UserError, match="is there already"):
        holdfast.audit_dossier([place / "run"], place / "dossier")
