"""The data card of a hard set: what is in it, what is there too often, whom it concerns, what it may be used for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.pipeline.hard.results import Selection
from holdfast.stats.hard.mining import share

if TYPE_CHECKING:
    import pandas as pd

PEOPLE = (
    "adult", "baby", "boy", "bride", "child", "children", "clown", "crowd", "doctor", "elderly", "face", "farmer",
    "father", "female", "girl", "groom", "hand", "human", "kid", "king", "lady", "male", "man", "men", "monk",
    "mother", "nun", "nurse", "people", "person", "player", "police", "priest", "prince", "princess", "queen",
    "soldier", "student", "teacher", "toddler", "woman", "women", "worker",
)  # fmt: skip
CULTURES = (
    "aboriginal", "africa", "african", "american", "arab", "arabic", "asia", "asian", "brazilian", "british",
    "buddha", "buddhist", "caribbean", "cathedral", "chapel", "china", "chinese", "christian", "church", "european",
    "french", "german", "ghetto", "hijab", "hindu", "igloo", "india", "indian", "indigenous", "islamic", "italian",
    "japan", "japanese", "jewish", "kasbah", "kimono", "korean", "latin", "mexican", "monastery", "mosque", "muslim",
    "native", "pagoda", "persian", "pilgrim", "pub", "ramadan", "russian", "sari", "shrine", "slum", "sombrero",
    "souk", "spanish", "synagogue", "temple", "tribal", "turban", "turkish", "yurt",
)  # fmt: skip
"""Words that bring people or cultures into a picture; a prompt with one of them, singular or plural, is counted."""


def data_card(
    manifest: pd.DataFrame,
    pool: pd.DataFrame,
    selection: Selection,
    tables: dict[str, pd.DataFrame],
    facts: dict[str, Any],
) -> str:
    """Return the text of ``DATACARD.md``."""
    parts = [
        "# Data card of a mined hard set",
        _what(manifest, facts),
        "## Counts\n\n" + _counts(manifest),
        "## Over-represented among the hard\n\n" + _over(tables),
        "## Labels\n\n" + _labels(tables, facts),
        "## People and cultures\n\n" + _bias(pool, selection),
        "## Licences and origin\n\n" + _licences(facts),
        "## Uses\n\n" + _uses(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _what(manifest: pd.DataFrame, facts: dict[str, Any]) -> str:
    return (
        f"{len(manifest)} generated images of {manifest['label'].nunique()} categories that {facts['choice']['words']} "
        f"surrogate models get wrong, out of a pool of {facts['images']} images of {facts['prompts']} prompts. "
        f"The label is the category that the prompt asked for. Surrogates: {', '.join(facts['used'])}. Held-out "
        f"targets: {', '.join(facts['targets'])}. Oracle: {facts['oracle']}.\n\n"
        + " ".join(facts["choice"]["rule"])
        + " These were chosen on the prompts whose `half` is `choose`; figures in `mining/report/index.html` are about "
        "the others (`report`), unless it says otherwise. The surrogates' own accuracy on this set is low because it "
        "was chosen so: it measures nothing."
    )


def _counts(manifest: pd.DataFrame) -> str:
    table = manifest.groupby(["label", "condition"]).size().unstack(fill_value=0)
    table["all"] = table.sum(axis=1)
    text = _table(
        ["category", *map(str, table.columns)],
        [[name, *row] for name, row in zip(table.index, table.to_numpy().tolist(), strict=True)],
    )
    if "nuisance" in manifest:
        named = manifest["condition"] + ": " + manifest["nuisance"].fillna("")
        counted = named.value_counts()
        text += "\n\n" + _table(["nuisance", "images"], [[name, int(count)] for name, count in counted.items()])
    return text


def _over(tables: dict[str, pd.DataFrame]) -> str:
    lines = []
    for name, what in (("rates_kind", "kind"), ("rates_nuisance", "nuisance"), ("rates_category", "category")):
        frame = tables[name]
        frame = frame[(frame["half"] == "both") & (frame["subset"] == "valid")]
        lines += [
            f"- {what} **{_plain(row['value'])}** is {row['stands_out']}-represented: {row['hard']} of {row['n']} "
            f"valid images are hard, {row['estimate']:.1%} ({row['low']:.1%} to {row['high']:.1%}); that is "
            f"{100 * row['excess']:+.1f} points ({100 * row['excess_low']:+.1f} to {100 * row['excess_high']:+.1f}) "
            "against all others"
            for row in frame[frame["stands_out"] != ""].to_dict("records")
        ]
    head = (
        "A kind, nuisance or category stands out where its hard rate among valid images differs from the "
        "others', at a level of 5 % over all values of its sort together; intervals treat prompts, not images, as "
        "independent."
    )
    return head + "\n\n" + ("\n".join(lines) if lines else "None stands out.")


def _labels(tables: dict[str, pd.DataFrame], facts: dict[str, Any]) -> str:
    rows = [
        [row["set"], row["n"], f"{row['estimate']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}"]
        for row in tables["validity"].to_dict("records")
        if row["n"]
    ]
    card = "\n".join(f"- {heading}: {text}" for heading, text in facts["oracle_card"])
    return (
        "Nobody looked at the images one by one: an oracle accepted or rejected each. Images that many models fail are "
        "wrong labels more often than others; the shares of accepted images (reporting half of the prompts):\n\n"
        + _table(["images", "n", "accepted", "95 % interval"], rows)
        + f"\n\nThe oracle:\n\n{card}"
        + "".join(f"\n\nWarning: {warning}" for warning in facts["warnings"])
    )


def _bias(pool: pd.DataFrame, selection: Selection) -> str:
    """Return how many prompts have a word of the lists, and how often their images are hard."""
    rows = []
    for what, words in (("people", PEOPLE), ("cultures", CULTURES)):
        for word in words:
            inside = mentions(pool["prompt"], word)
            if inside.any():
                rate = share(selection.shared[inside], pool.loc[inside, "prompt_id"])
                rate_text = f"{rate['estimate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"
                rows.append([word, what, rate["prompts"], rate["n"], rate_text])
    searched = f"Prompts were searched for {len(PEOPLE)} words for people and {len(CULTURES)} for cultures."
    lists = (
        f"\n\nThe words for people: {', '.join(PEOPLE)}.\n\nThe words for cultures: {', '.join(CULTURES)}.\n\n"
        "A list of words finds no picture that shows people unasked, and no stereotype."
    )
    if not rows:
        return f"{searched} None of them occurs." + lists
    other = share(selection.shared, pool["prompt_id"])
    return (
        f"{searched} These occur; {other['estimate']:.1%} of all images of the pool are shared failures. A generator's "
        "stereotypes are in its pictures of them, so a hard rate here may be its fault and not the models':\n\n"
        + _table(["word", "list", "prompts", "images of the pool", "shared failures"], rows)
        + lists
    )


def mentions(prompts: pd.Series, word: str) -> pd.Series:
    """Return which prompts have a word, singular or plural."""
    return prompts.str.contains(rf"\b{re.escape(word)}(?:s|es)?\b", case=False, regex=True)


def _licences(facts: dict[str, Any]) -> str:
    licences = ", ".join(map(_plain, facts["licences"])) or "not stated in the pool's manifest: ask whoever made it"
    generators = ", ".join(map(_plain, facts["generators"])) or "not stated"
    if any(generator.startswith("embedded:") for generator in facts["generators"]):
        generators += " (Holdfast's own, like the words of its drawn world: Apache-2.0)"
    return (
        f"Generator: {generators}. Licence of the images, as the pool's manifest states it: {licences}. Prompts, seeds "
        "and the generator's fingerprint stand in `manifest.csv` with every image, and the SHA-256 of its file, which "
        "is checked whenever Holdfast reads it. A generator's licence may bind what it made; words of categories and "
        "nuisances taken from lists of others keep the terms of those lists."
    )


def _uses(facts: dict[str, Any]) -> str:
    return (
        "For trying models that are neither surrogates nor related to them. Not a sample of any population: a low "
        "accuracy here says that a model shares failures with the surrogates, and means something only beside its "
        f"accuracy on the unmined pool and on the matched control. Made with seed {facts['seed']} by Holdfast "
        f"{facts['environment']['packages'].get('holdfast', '')}, {facts['environment']['time']}."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(cell: Any) -> str:
    """Return text that breaks no Markdown table and runs no HTML."""
    text = str(cell).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"\s+", " ", re.sub(r"([|\\`\[\]])", r"\\\1", text))
