"""Commands for evidence: ``holdfast share``, ``holdfast audit table`` and ``holdfast board``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from holdfast.cli.listing import TerminalProgress, echo_lines
from holdfast.cli.verb import CommandCall, Device, Quiet, verb
from holdfast.core.errors import UserError
from holdfast.core.names import split_list
from holdfast.core.numbers import percent, points
from holdfast.core.verbs import Verb
from holdfast.pipeline.specs import RerunOptions

AGREES, DISAGREES = 0, 1


def bundle(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, Option(help="The archive to write, such as result.zip.")],
    report: Annotated[bool, Option(help="Include the report, a page that opens without Holdfast.")] = True,
    pictures: Annotated[bool, Option("--pictures", help="Pack the images that the run kept.")] = False,
    models: Annotated[bool, Option("--models", help="Pack the models that the run trained.")] = False,
    quiet: Quiet = False,
) -> None:
    """Pack a run into one archive of open formats that can be read without Holdfast, years later."""
    from holdfast_evidence.bundle import bundle as pack

    with TerminalProgress(quiet=quiet) as progress:
        done = pack(run, out, report=report, pictures=pictures, models=models, progress=progress)
    typer.echo(f"{done.files} files, {done.size / 1e6:.1f} MB; {done.path}")
    typer.echo(f"SHA-256 {done.sha256}")
    for note in done.notes:
        typer.echo(f"  {note}")


def open_(
    bundle: Annotated[Path, Argument(metavar="BUNDLE", help="An archive that holdfast share bundle made.")],
    out: Annotated[Path, Option(help="The run directory to write; it must not exist yet.")],
    data: Annotated[str, Option(help="Folder of the images, for thumbnails in reports.", show_default=False)] = "",
    masks: Annotated[str, Option(help="Folder of the masks of these images.", show_default=False)] = "",
    max_gigabytes: Annotated[float, Option(min=0.001, help="Size that the archive may unpack to.")] = 8.6,
) -> None:
    """Check a bundle and write it as a run directory; a bundle with any fault is refused, and nothing is written."""
    from holdfast_evidence.opening import open_bundle

    done = open_bundle(bundle, out, data=data, masks=masks, max_bytes=int(max_gigabytes * 1e9))
    rows, pictures = (f"{done.counts.get(name, 0):,}" for name in ("predictions", "samples"))
    typer.echo(f"{done.files} files checked, {rows} rows of {pictures} images; {done.path}")
    for note in done.notes:
        typer.echo(f"  {note}")
    typer.echo(f"  holdfast report {done.path} makes the report again from these rows")


@verb(RerunOptions, out="")
def verify(
    job: CommandCall[RerunOptions],
    entry: Annotated[
        Path, Argument(metavar="ENTRY.json", help="An entry with its table next to it, their folder, or a dossier's.")
    ],
    rows: Annotated[int, Option(min=1, help="Number of rows to measure again.")] = 200,
    seed: Annotated[
        int | None, Option(help="Seed of the drawing of rows, to repeat it; by default a random one.")
    ] = None,
    tolerance: Annotated[float, Option(min=0, max=1, help="Difference of probabilities that is tolerated.")] = 0.01,
    allow: Annotated[float, Option(min=0, max=1, help="Share of the drawn rows that may disagree.")] = 0.0,
    renamed: Annotated[
        bool, Option("--renamed", help="Accept rows with other ids here, such as those of other weights.")
    ] = False,
    out: Annotated[Path | None, Option(help="CSV to write, with every row compared.")] = None,
) -> None:
    """Measure a random part of an entry's rows again: exit code 0 they agree, 1 they do not, 2 they cannot be."""
    from holdfast_evidence.board.verify import verify as check_rows
    from holdfast_evidence.board.verify import write_rows
    from holdfast_evidence.dossier.assembly import SEAL, check_seal

    if (entry / SEAL).is_file():
        faults = check_seal(entry)
        for fault in faults or ["the document and its bundles belong together, and no file was changed"]:
            typer.echo(fault)
        raise typer.Exit(DISAGREES if faults else AGREES)
    if not job.spec.data:
        raise UserError("--data names the dataset of the entry; only a dossier's folder is verified without it")

    with TerminalProgress(quiet=job.quiet) as progress:
        verified = check_rows(
            entry, rows=rows, seed=seed, tolerance=tolerance, allow=allow, renamed=renamed, progress=progress,
            **vars(job.spec),
        )  # fmt: skip
    for sentence in verified.sentences():
        typer.echo(sentence)
    pixels = {None: "", True: ", same pixels", False: ", other pixels"}
    echo_lines(
        [
            f"{row.sample_id} under {row.condition}: {row.why}{pixels[row.same_pixels]}"
            for row in verified.rows
            if not row.agrees
        ],
        f"more; {out} has all" if out else "more; --out FILE.csv has all",
    )
    if out is not None:
        write_rows(verified, out)
    raise typer.Exit(AGREES if verified.agrees else DISAGREES)


Out = Annotated[Path, Option(help="Folder of the board, or of a submission.")]


def add(
    run: Annotated[Path, Argument(help="A run directory of eval, train or perturb.")],
    out: Out,
    meta: Annotated[Path | None, Option(help="TOML: title, paper, code, note, speed on stated hardware.")] = None,
    models: Annotated[list[str] | None, Option(help="Use only these models of the run, separated by commas.")] = None,
    device: Annotated[str, Option(help="Device on which models are loaded to count their parameters.")] = "cpu",
) -> None:
    """Make entries from a run: ID.json and ID.parquet for each model and protocol."""
    from holdfast_evidence.board.add import add as run_add

    for path in run_add(run, out, meta, models=split_list(",".join(models or ())) or None, device=device):
        typer.echo(str(path))


def check(
    places: Annotated[list[Path], Argument(help="A board, or the files of a submission.", metavar="DIR|FILES")],
    against: Annotated[Path | None, Option(help="The board that a submission is to join.")] = None,
) -> None:
    """Recompute every number and report what is wrong: exit code 0 nothing, 1 something."""
    from holdfast_evidence.board.check import check as run_check

    recomputed: list[str] = []
    problems = run_check(places, against=against, keep=lambda entry, _: recomputed.append(entry.id))
    for problem in problems:
        typer.echo(str(problem))
    count = f"{len(problems)} problem{'s' * (len(problems) > 1)}" if problems else "nothing is wrong"
    typer.echo(f"{count}; measured entries recomputed: {len(recomputed)}", err=True)
    raise typer.Exit(1 if problems else 0)


def import_(
    files: Annotated[list[Path], Argument(help="RobustBench's model_info files.", metavar="MODEL_INFO.json…")],
    out: Out,
    threat: Annotated[
        str, Option(help="Linf, L2 or corruptions, if the folders above a file do not say.", show_default=False)
    ] = "",
) -> None:
    """Make printed entries from RobustBench's list."""
    from holdfast_evidence.board.printed import import_model_info

    for path in import_model_info(files, out, threat=threat):
        typer.echo(str(path))


def build(
    board: Annotated[Path, Argument(help="The board: ID.json and ID.parquet for each entry.", metavar="DIR")],
    out: Annotated[Path, Option(help="The site: a new folder, or an earlier site, which is replaced.", metavar="SITE")],
    title: Annotated[str, Option(help="Title of the board.")] = "Leaderboard",
    printed: Annotated[bool, Option("--printed/--no-printed", help="Show tables printed in papers, too.")] = True,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out entries that the check refuses, and name them.")
    ] = False,
    reports: Annotated[
        bool, Option("--reports", help="Write the full report of every static and hard entry; takes seconds each.")
    ] = False,
    cache: Annotated[Path | None, Option(help="Folder that keeps measured numbers for the next build.")] = None,
    workers: Annotated[
        int, Option(min=0, help="Number of processes; 0 starts one per core if there are many entries.")
    ] = 0,
) -> None:
    """Write a site that opens from disk and from any web server; every number is recomputed."""
    from holdfast_evidence.board.site.build import build as run_build

    built = run_build(
        board, out, title=title, printed=printed, skip_bad=skip_bad, reports=reports, cache=cache, workers=workers
    )
    for problem in built.refused:
        typer.echo(f"left out: {problem}", err=True)
    typer.echo(f"{built.measured} measured entries, {built.printed} printed; {built.page}")


def declare(
    protocol: Annotated[Path, Argument(metavar="PROTOCOL.toml", help="Data, models, conditions, margin and rule.")],
    out: Annotated[Path, Option(help="The declaration to write, such as declaration.json; never replaced.")],
    key: Annotated[
        Path | None, Option(help="PEM file of a private Ed25519 key that signs it.", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Declare a measurement before it is made: with time, hash of the data, weights and power."""
    from holdfast_evidence.dossier import declare as write

    with TerminalProgress(quiet=quiet) as progress:
        done = write(protocol, out, key=key, progress=progress)
    margin, detectable = done["protocol"]["margin"], done["detectable"]
    typer.echo(f"declared {done['declared']}: {done['data']['photos']} images, {len(done['models'])} models, "
               f"{len(done['conditions'])} conditions; fingerprint {done['fingerprint'][:16]}…")  # fmt: skip
    if detectable is not None:
        enough = "enough for" if detectable <= margin else "too few for"
        typer.echo(f"a difference of {points(detectable)} is found with power "
                   f"{percent(done['protocol']['power'], 0)} if one image in ten changes its answer: {enough} the "
                   f"margin of {100 * margin:g}")  # fmt: skip
    typer.echo(f"holdfast eval … --protocol {out} measures under it")


def dossier(
    runs: Annotated[list[Path], Argument(metavar="RUN…", help="Run directories of eval.")],
    out: Annotated[Path, Option(help="A new folder for the document, its images and its bundles.")],
    standards: Annotated[
        list[str] | None,
        Option("--for", show_default=False, help="Map to a standard: iso-24029, ai-act-15, model-card, "
               "neurips-checklist, or a TOML file; several by comma."),
    ] = None,
    votes: Annotated[
        Path | None,
        Option(help="What people said about images (holdfast people review … --export).", show_default=False),
    ] = None,
    title: Annotated[str, Option(help="Title of the document.", show_default=False)] = "",
    pictures: Annotated[bool, Option(help="Show images and charts.")] = True,
) -> None:  # fmt: skip
    """Write the evidence of runs as one PDF (and HTML, Markdown), with every answer in a bundle next to it."""
    from holdfast_evidence.dossier import dossier as write

    names = [name for text in standards or () for name in split_list(text)]
    page = write(runs, out, standards=names, votes=votes, title=title, pictures=pictures)
    typer.echo(f"{page}; holdfast share verify {out} says whether its files belong together")


def watch(
    series: Annotated[Path, Argument(metavar="SERIES", help="Folder of the series; made with its first run.")],
    run: Annotated[Path | None, Argument(metavar="[RUN]", help="A run directory of eval to add.")] = None,
    photos: Annotated[
        str | None, Option(help="New images without labels: are they within what was tested?", show_default=False)
    ] = None,
    model: Annotated[str | None, Option(help="Which model, if RUN has several.", show_default=False)] = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Keep a series of runs of one model family: what changed since the first, with few false alarms over all time."""
    from holdfast_evidence.dossier.series import watch as look
    from holdfast_evidence.dossier.series_page import sentence

    with TerminalProgress(quiet=quiet) as progress:
        kept = look(series, run, photos=photos, model=model, device=device, progress=progress)
    last = kept["entries"][kept["entry"] - 1]
    for entry in [last] if run or photos else kept["entries"]:
        typer.echo(sentence(entry))
        for note in entry["notes"]:
            typer.echo(f"note: {note}")
    for number in kept["missing"]:
        typer.echo(f"note: the folder of run {number} is gone")
    typer.echo(kept["page"])
    worse = any(row["change"] == "worse" for row in last.get("changes", ()))
    if (run or photos) and (worse or last.get("answer") == "outside"):
        raise typer.Exit(1)
    if photos and last["answer"] == "cannot say":
        raise typer.Exit(3)


def audit_table(
    table: Annotated[Path, Argument(metavar="TABLE.csv", help="A printed table of one of the three protocols.")],
    reference: Annotated[Path | None, Option(help="Another table of the same paper to check against.")] = None,
    n: Annotated[int | None, Option(min=1, help="Images behind each row, if known.")] = None,
    also: Annotated[
        list[Path] | None, Option(help="Another table that prints some of the same figures; may be repeated.")
    ] = None,
    claims: Annotated[
        Path | None, Option(help="Sentences that quote the tables: columns text, value, table, how.")
    ] = None,
) -> None:
    """Check a printed table for slips that arithmetic can prove: exit code 0 none, 1 some."""
    from holdfast_evidence.printed_tables import audit as find
    from holdfast_evidence.printed_tables import check_claims, read_table

    printed = read_table(table)
    others = {path.name: read_table(path) for path in also or ()}
    second = read_table(reference) if reference else None
    findings = find(printed, name=table.name, reference=second, n=n, also=others)
    if claims is not None:
        findings += check_claims(read_table(claims), {table.name: printed, **others})
    for finding in findings:
        typer.echo(f"{finding.where}: {finding.sentence}")
    typer.echo(f"{table.name}: {len(findings)} findings" if findings else f"{table.name}: nothing found")
    raise typer.Exit(1 if findings else 0)


def _verb(name: str, command: object, function: str | None = None) -> Verb:
    return Verb(name, "Companions", command=command, function=function and f"holdfast_evidence.{function}")


SHARE = Verb("share", "Companions", help="Hand results on: as one archive, or in the formats of other tools.")
BUNDLE = _verb("share bundle", bundle, "functions:bundle")
OPEN = _verb("share open", open_)
VERIFY = _verb("share verify", verify, "functions:verify")
AUDIT = Verb("audit", "Companions", help="Check printed tables, declare measurements, and keep evidence over time.")
TABLE = _verb("audit table", audit_table)
DECLARE = _verb("audit declare", declare, "dossier:declare")
DOSSIER = _verb("audit dossier", dossier, "dossier:dossier")
WATCH = _verb("audit watch", watch, "dossier:watch")
BOARD = Verb("board", "Companions", help="A leaderboard that recomputes every number.")
ADD = _verb("board add", add)
CHECK = _verb("board check", check)
IMPORT = _verb("board import", import_)
BUILD = _verb("board build", build)
VERBS = (SHARE, BUNDLE, OPEN, VERIFY, AUDIT, TABLE, DECLARE, DOSSIER, WATCH, BOARD, ADD, CHECK, IMPORT, BUILD)
