"""What a release needs other than building: one version for all packages, and the section of the changelog.

``python docs/release.py stamp v1.2.3`` writes the version of a tag into every ``pyproject.toml``, lets the packages
require each other at that version, and pins it in the workflows of docs/github. ``--repository ADDRESS`` (on GitHub)
also writes ``project.urls`` and makes the links of the READMEs absolute: the package index has none of the other files.
``python docs/release.py notes v1.2.3`` prints the section of CHANGELOG.md, unless that is still called unreleased.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")
_VERSION = re.compile(r'^version = "([^"]+)"$', re.M)
_REQUIRED = re.compile(r'"(holdfast-[a-z]+(?:\[[a-z0-9,-]+\])?)(?:==[^"]+)?"')
_PINNED = re.compile(r"\b(holdfast-vision(?:\[[a-z,]+\])?)==[0-9a-z.]+")
_LINK = re.compile(r"(!?)(\[[^][]*\])\((?![a-z]+:|#)([^)\s]+)\)")
_URLS = re.compile(r"\n\[project\.urls\]\n(?:[^\[\n].*\n)*")


def projects(root: Path) -> list[Path]:
    """Return the project files of all packages, the core's first."""
    return [root / "pyproject.toml", *sorted(root.glob("packages/*/pyproject.toml"))]


def version_of(tag: str) -> str:
    """Return the version of a tag such as v1.2.3."""
    match = _TAG.fullmatch(tag)
    return match[1] if match else sys.exit(f"{tag!r} is not a tag of a release: write v1.2.3")


def stamp(tag: str, root: Path) -> None:
    """Write the version of a tag into all packages."""
    version = version_of(tag)
    names = {re.search(r'^name = "([^"]+)"$', file.read_text(), re.M)[1] for file in projects(root)}  # type: ignore[index]
    for file in projects(root):
        text, count = _VERSION.subn(f'version = "{version}"', file.read_text(encoding="utf8"))
        if count != 1:
            sys.exit(f"{file} should have one version, not {count}")
        own = re.search(r'^name = "([^"]+)"$', text, re.M)

        def pinned(match: re.Match[str], own: str = own[1] if own else "") -> str:
            name = match[1].partition("[")[0]
            return f'"{match[1]}=={version}"' if name in names - {own} else match[0]

        head, mark, tail = text.partition("\ndependencies = ")  # not the project's own name above
        file.write_text(head + mark + _REQUIRED.sub(pinned, tail), encoding="utf8")
        print(f"{file.relative_to(root)}: {version}")
    for file in sorted((root / "docs" / "github").glob("*.yml")):
        file.write_text(_PINNED.sub(rf"\g<1>=={version}", file.read_text(encoding="utf8")), encoding="utf8")


def link(tag: str, root: Path, repository: str) -> None:
    """Write the repository's address into all packages, and into the links of their READMEs."""
    tree = f"{repository.rstrip('/')}/{{}}/{tag}"
    for file in projects(root):
        urls = {
            "Source": repository,
            "Changelog": f"{tree.format('blob')}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        table = "".join(f'{name} = "{address}"\n' for name, address in urls.items())
        text = _URLS.sub("", file.read_text(encoding="utf8"))
        file.write_text(f"{text}\n[project.urls]\n{table}", encoding="utf8")
        readme, folder = file.with_name("README.md"), file.parent.relative_to(root).as_posix()

        def absolute(match: re.Match[str], folder: str = folder) -> str:
            path = posixpath.normpath(posixpath.join(folder, match[3]))
            return f"{match[1]}{match[2]}({tree.format('raw' if match[1] else 'blob')}/{path})"

        readme.write_text(_LINK.sub(absolute, readme.read_text(encoding="utf8")), encoding="utf8")


def notes(tag: str, root: Path) -> str:
    """Return the section of the changelog for a tag; an error without one."""
    version = version_of(tag)
    text = (root / "CHANGELOG.md").read_text(encoding="utf8")
    section = re.search(rf"^## \[?{re.escape(version)}\]?(?=\s)([^\n]*)\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not section or not section[2].strip():
        sys.exit(f"CHANGELOG.md has no section '## {version}'")
    if "unreleased" in section[1].lower():
        sys.exit(f"CHANGELOG.md calls {version} unreleased: write the date there, '## {version} (2027-01-31)'")
    return section[2].strip()


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("stamp", "notes"))
    parser.add_argument("tag")
    parser.add_argument("--repository", default="", help="address of the repository, for stamp")
    parser.add_argument("--root", type=Path, default=ROOT)
    asked = parser.parse_args()
    if asked.verb == "stamp":
        stamp(asked.tag, asked.root)
        if asked.repository:
            link(asked.tag, asked.root, asked.repository)
    else:
        print(notes(asked.tag, asked.root))


if __name__ == "__main__":
    main()
