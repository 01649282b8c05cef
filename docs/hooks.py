"""What the site shows of other files: cards of embedded assets, changelog, contributing, options, columns.

Nothing is copied into docs/: pages are made while MkDocs builds, from the files that are shipped.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from holdfast.cli.tree import leaf_of

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "src" / "holdfast" / "assets"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    for where, text in made_pages():
        files.append(File.generated(config, where, content=text))
    for path, where in OF_PACKAGES.items():
        files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links to files of the repository lead to the pages that the site makes of them."""
    where = page.file.src_uri
    folder = HOMES.get(where, ROOT / "docs" / where).parent

    def on_site(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if target.name == "README.md" and target.is_relative_to(ASSETS):
            other = f"cards/{target.parent.relative_to(ASSETS).as_posix()}.md"
        elif target in PAGES_OF and PAGES_OF[target] != where:
            other = PAGES_OF[target]
        elif where in HOMES and target.is_relative_to(ROOT / "docs"):
            other = target.relative_to(ROOT / "docs").as_posix()
        else:
            return link[0]
        return f"]({os.path.relpath(other, Path(where).parent)}{link[2] or ''})"

    return (
        markdown if page.file.src_uri == "notebook.md" else re.sub(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)", on_site, markdown)
    )


OF_PACKAGES = {
    path: f"{path.parents[len(path.relative_to(docs).parts)].name}/{path.relative_to(docs).as_posix()}"
    for docs in sorted(ROOT.glob("packages/*/docs"))
    for path in sorted(docs.rglob("*.*"))
} | {ROOT / "examples" / "plugin" / "README.md": "adding/example.md"}
"""Pages and images of companions and examples → where the site has them: ``packages/X/docs/y.md`` is ``X/y.md``."""
HOMES = {where: path for path, where in OF_PACKAGES.items()}
PAGES_OF = OF_PACKAGES | {
    ROOT / "docs" / "notebook.ipynb": "notebook.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "docs" / "statistics" / "promises.csv": "statistics/promises.md",
}


def made_pages() -> Iterator[tuple[str, str | bytes]]:
    """Path below docs/ and Markdown of each."""
    for card in sorted(ASSETS.rglob("README.md")):
        text = card.read_text(encoding="utf8")
        # Hubs nest lists by two spaces, MkDocs by four.
        yield f"cards/{card.parent.relative_to(ASSETS).as_posix()}.md", re.sub(r"^  - ", "    - ", text, flags=re.M)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        yield name.lower(), (ROOT / name).read_text(encoding="utf8").replace("](docs/", "](")
    yield from notebook_page()
    yield "commands.md", commands_page()
    yield "columns.md", columns_page()
    yield "statistics/promises.md", promises_page()
    yield "api/verbs.md", verbs_page()


def notebook_page() -> Iterator[tuple[str, str | bytes]]:
    """Return the executed notebook as a page, and the images in its outputs."""
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf8"))
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            if picture := output.get("data", {}).get("image/png"):
                yield f"assets/notebook-{number}.png", base64.b64decode(picture)
                parts.append(f"![What the cell above draws](assets/notebook-{number}.png)")
            else:
                text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    yield "notebook.md", "\n\n".join([*parts, "[The notebook itself](notebook.ipynb)", ""])


def commands_page() -> str:
    """Every verb with its arguments and options, as the parser knows them."""
    import typer

    from holdfast.cli.main import app

    parts = ["# All options\n", "Made from the command line's own parser; `holdfast VERB --help` prints the same.\n"]
    for words, command in _commands(typer.main.get_command(app), ("holdfast",)):
        usage = " ".join([*words, *command.collect_usage_pieces(command.context_class(command))])
        usage = re.sub(r"[{}]", "", usage)
        parts += [f"## {' '.join(words)}", "", f"`{usage}`", "", _escaped(command.help or ""), ""]
        rows = [row for parameter in command.params if (row := _row(parameter))]
        if rows:
            parts += ["| option | default | |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def columns_page() -> str:
    """Return the page of the columns of the one table, from its schema."""
    from holdfast.core.schema import MEANINGS

    rows = (f"| `{column}` | {_escaped(meaning)} |" for column, meaning in MEANINGS["predictions"].items())
    head = [
        "# Columns of the table\n",
        "`run.rows().to_pandas()` has a row per image, condition and model. Columns that do not apply are empty.\n",
        "| column | meaning |",
        "|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def promises_page() -> str:
    """Return the page of the measured coverage and error rates."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from promises.page import page, read

    return page(read(ROOT / "docs" / "statistics" / "promises.csv"))


def verbs_page() -> str:
    """Return the page of the API's verbs: every function with its signature and the help of its arguments."""
    import holdfast
    from holdfast import registry

    parts = [
        "# Verbs\n",
        "Made from the options of the command line: [all options](../commands.md) has the same help.\n",
    ]
    others = [verb.python_name for verb in map(registry.verbs.get, registry.verbs) if verb.function is not None]
    for name in sorted({*holdfast.__all__, *others}):
        function = getattr(holdfast, name)
        if not inspect.isfunction(function) or name in SHOWN_ELSEWHERE:
            continue
        head, _, arguments = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
        signature = inspect.signature(function)
        lines = [f"    {_argument(one)}," for one in signature.parameters.values()]
        parts += [f"## {name} {{ #holdfast.{name} }}", "", "```python", f"holdfast.{name}(", *lines, ")", "```", ""]
        parts += [_escaped(head), "", *(f"- **{key}**: {_escaped(text)}" for key, text in _arguments(arguments)), ""]
    return "\n".join(parts)


SHOWN_ELSEWHERE = (
    "compare",
    "load_classifier",
    "load_collection",
    "open_run",
    "parse_conditions",
    "render",
    "report",
    "scenario",
)


def _argument(parameter: Any) -> str:
    kind = parameter.annotation
    text = re.sub(r"[\w.]+\.(\w+)", r"\1", kind.__name__ if inspect.isclass(kind) else str(kind))
    default = parameter.default
    return f"{parameter.name}: {text}" + (
        "" if default is parameter.empty else f" = {getattr(default, '__name__', repr(default))}"
    )


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and help of every argument of a docstring's list."""
    for line in re.split(r"\n(?=    \S)", text.partition("\n\n")[0]):
        name, _, words = line.strip().partition(": ")
        if words:
            yield name, words


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands") or command.name == "plan":  # its verbs have the options of the verbs
        yield words, command
        return
    if leaf_of(command) is not command:
        yield words, leaf_of(command)
    for name in sorted(command.commands):
        yield from _commands(command.commands[name], (*words, name))


def _row(parameter: Any) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = parameter.metavar or parameter.name.upper()
    default = parameter.default
    if default is None or default in ("", (), [], False) or callable(default):
        default = "needed" if parameter.required else ""
    shown = f"`{default}`" if default not in ("", "needed") else default
    return f"| `{names}` | {shown} | {_escaped(getattr(parameter, 'help', None) or '')} |"


def _escaped(text: str) -> str:
    """Help as one line of Markdown: no cell ends in it and no tag begins."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
