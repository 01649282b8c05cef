"""The page of a bundle for somebody who has the archive and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS = {
    "predictions": "rows of the one table",
    "samples": "pictures of the dataset",
    "jobs": "trainings",
    "pictures": "pictures",
    "models": "trained models",
}


def readme(spec: Mapping[str, Any], counts: Mapping[str, int], name: str, *, report: bool) -> str:
    """README.txt: what is here, how to read it without Holdfast and with it, and whose it is."""
    title = f"Results of the run {name!r}: what vision models hold on to"
    held = [f"  {number:>9,}  {_WORDS.get(what, 'rows of ' + what)}" for what, number in sorted(counts.items())]
    first = ["  report/index.html       the report: open it in any browser; it needs no network"] if report else []
    return "\n".join([
        title, "=" * len(title), "",
        f"Verb: {spec.get('verb', '')}. Dataset: {spec.get('dataset', '')}. Seed: {spec.get('seed', '')}.", "",
        *held, "",
        "What is here", "------------",
        *first,
        "  tables/*.csv            the summary tables, as text",
        "  predictions/*.parquet   every answer: a row for each picture, condition and model",
        "  samples.parquet         the pictures, with their hashes",
        "  details/, curves/, jobs.parquet   what else there is to some rows",
        "  columns.txt             what every column of every table means",
        "  spec.json               what was asked for",
        "  environment.json        machine, versions and command",
        "  images/, frames/, generated/, models/   pictures and trained models, where they were asked for",
        "  manifest.json           size and SHA-256 of every other file, and the versions of all formats", "",
        "To read it without Holdfast", "---------------------------",
        "The archive is a ZIP file, tables are Apache Parquet and CSV, texts are UTF-8, settings are JSON,",
        "weights are safetensors. For example in Python:", "",
        "  import pandas",
        '  rows = pandas.read_parquet("predictions")',
        '  rows = rows[rows["status"] == "ok"]',
        '  print(rows.groupby(["model", "condition"], observed=True)["correct"].mean())', "",
        "or in SQL with DuckDB:", "",
        "  select model, condition, avg(correct::int) from 'predictions/*.parquet'",
        "  where status = 'ok' group by all;", "",
        "To read it with Holdfast", "------------------------",
        "  holdfast open THIS.zip --out FOLDER    checks everything, then writes a run directory",
        "  holdfast report FOLDER                 makes the report anew from the rows", "",
        "What was left out", "-----------------",
        "The photos themselves. Paths of the machine, names of its users and addresses of servers: a path is cut",
        "to its last name.", "",
        "Licence", "-------",
        "The numbers are the submitter's. Pictures in the report and in the archive stay under the licence of their",
        "dataset: see the column licence of samples.parquet. Holdfast itself is under Apache-2.0.", "",
    ])  # fmt: skip
