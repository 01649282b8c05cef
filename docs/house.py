"""Draw the rooms of the package to scale, with their imports, as docs/assets/house.svg: `make house`.

An area is a number of lines: rooms are squares, sub-rooms are frames in them, files are tiles. Rows are the layers that
import-linter holds. A folder with more than 15 files is amber; imports that go round in a circle are red.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "holdfast"
PICTURE = ROOT / "docs" / "assets" / "house.svg"

CROWDED = 15
"""Files that a folder may have before it is drawn as crowded."""
WIDTH, GAP, ROW_GAP, TITLE = 1500, 26, 58, 30
SCALE = 2.05
"""Pixels per square root of a line."""
INK, PAPER, TILE, EDGE, AMBER, RED = "#1d2733", "#ffffff", "#dbe7f2", "#7b8da1", "#f5c469", "#c8102e"

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class House:
    """Lines per module, and how often a module imports another: `core.schema`, `check`, `stats` (its `__init__`)."""

    lines: dict[str, int]
    folders: frozenset[str]
    imports: Counter[tuple[str, str]]

    def folder(self, module: str) -> str:
        """Return the folder that a module is in; a module next to the rooms is a room itself."""
        return module if module in self.folders or "." not in module else module.rpartition(".")[0]

    def edges(self) -> Counter[tuple[str, str]]:
        """Count the imports between folders."""
        counts: Counter[tuple[str, str]] = Counter()
        for (importer, imported), count in self.imports.items():
            if self.folder(importer) != self.folder(imported):
                counts[self.folder(importer), self.folder(imported)] += count
        return counts

    def summary(self) -> dict[str, Any]:
        """Return what the image keeps of the house, to be compared with the code later."""
        rooms = sorted({self.folder(module) for module in self.lines})
        return {"rooms": rooms, "imports": sorted(f"{importer} {imported}" for importer, imported in self.edges())}


def read_house(package: Path = PACKAGE) -> House:
    """Read the house from the source files of a package."""
    files = {_module(path, package): path for path in sorted(package.rglob("*.py"))}
    folders = frozenset(_module(path, package) for path in package.rglob("__init__.py"))
    imports: Counter[tuple[str, str]] = Counter()
    lines = {}
    for module, path in files.items():
        text = path.read_text(encoding="utf8")
        lines[module] = text.count("\n")
        for imported in _imported(ast.parse(text), f"{package.name}.", files):
            imports[module, imported] += 1
    return House(lines, folders, imports)


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or package.name


def _imported(tree: ast.AST, prefix: str, files: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a module imports, wherever in it."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if not name.startswith(prefix):
                continue
            module = name.removeprefix(prefix)
            while module not in files and "." in module:
                module = module.rpartition(".")[0]
            yield module if module in files else prefix[:-1]


def circles(edges: Counter[tuple[str, str]]) -> list[set[str]]:
    """Return the groups of folders of which each reaches each other by imports."""
    reach: dict[str, set[str]] = {}
    for start in {folder for pair in edges for folder in pair}:
        seen, waiting = set[str](), [start]
        while waiting:
            here = waiting.pop()
            for importer, imported in edges:
                if importer == here and imported not in seen:
                    seen.add(imported)
                    waiting.append(imported)
        reach[start] = seen
    groups = {frozenset({start} | {other for other in seen if start in reach[other]}) for start, seen in reach.items()}
    return sorted((set(group) for group in groups if len(group) > 1), key=sorted)


def layers(rooms: set[str]) -> list[list[str]]:
    """Return the rooms by import-linter's layers, top to bottom; the rest comes last."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [[room for name in row.split("|") if (room := name.strip().partition(".")[2]) in rooms] for row in rows]
    rest = sorted(rooms - {room for row in named for room in row})
    return [row for row in [*named, rest] if row]


def tiles(areas: list[tuple[str, float]], box: Box) -> Iterator[tuple[str, Box]]:
    """Divide a box by areas, largest first, into parts that are as square as a row or column of them allows."""
    areas = sorted(areas, key=lambda item: (-item[1], item[0]))
    left, top, width, height = box
    while areas:
        total, side = sum(area for _, area in areas), min(width, height)
        density = width * height / total

        def worst(count: int, areas: list[Any] = areas, side: float = side, density: float = density) -> float:
            depth = sum(area for _, area in areas[:count]) * density / side
            lengths = [area * density / depth for _, area in areas[:count]]
            return max(max(length / depth, depth / length) for length in lengths)

        count = 1
        while count < len(areas) and worst(count + 1) <= worst(count):
            count += 1
        depth, along = sum(area for _, area in areas[:count]) * density / side, 0.0
        for name, area in areas[:count]:
            length = area * density / depth
            yield name, (left, top + along, depth, length) if width >= height else (left + along, top, length, depth)
            along += length
        if width >= height:
            left, width = left + depth, width - depth
        else:
            top, height = top + depth, height - depth
        areas = areas[count:]


def draw(house: House) -> str:
    """Return the image as SVG."""
    room_of = {module: module.partition(".")[0] for module in house.lines}
    sizes: Counter[str] = Counter()
    for module, count in house.lines.items():
        sizes[room_of[module]] += max(count, 1)
    heading = _heading(house, sum(sizes.values()))
    rooms: dict[str, Box] = {}
    folders: dict[str, Box] = {}
    parts: list[str] = []
    top = 40.0 + 20 * len(heading)
    for row in layers(set(sizes)):
        sides = [SCALE * sizes[room] ** 0.5 for room in row]
        gap = min(3.0 * GAP, (WIDTH - sum(sides)) / (len(row) + 1))
        left = (WIDTH - sum(sides) - gap * (len(row) - 1)) / 2
        for room, side in zip(row, sides, strict=True):
            rooms[room] = (left, top + TITLE + max(sides) - side, side, side)
            parts += _room(house, room, rooms[room], folders)
            left += side + gap
        top += TITLE + max(sides) + ROW_GAP
    parts = [*heading, *_room_lines(house, rooms), *parts, *_folder_lines(house, folders)]
    about = f"<metadata>{escape(json.dumps(house.summary(), separators=(',', ':')))}</metadata>"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" font-family="sans-serif">'
    paper = f'<rect width="{WIDTH}" height="{top:.0f}" fill="{PAPER}"/>'
    return "\n".join([start, about, paper, *parts, "</svg>\n"])


def _heading(house: House, lines: int) -> list[str]:
    """Say in words what is crowded and what goes round in a circle."""
    crowded = [f"{folder} ({count})" for folder, count in sorted(_files(house).items()) if count > CROWDED]
    groups = [", ".join(sorted(group)) for group in circles(house.edges())]
    sentences = [
        f"Folders of more than {CROWDED} files (amber): {', '.join(crowded) or 'none'}.",
        f"Folders that import each other in a circle (red): {'' if groups else 'none.'}",
        *(f"· {group}" for group in groups),
    ]
    title = _text(GAP, 30, f"{lines:,} lines in {len(house.lines)} files: areas are lines, rows are layers.", 17)
    return [title, *(_text(GAP, 52 + 18 * number, text, 13) for number, text in enumerate(sentences))]


def _files(house: House) -> Counter[str]:
    return Counter(house.folder(module) for module in house.lines)


def _room(house: House, room: str, box: Box, folders: dict[str, Box]) -> list[str]:
    """Draw a room with its folders and files, and remember where each folder is."""
    left, top, side, _ = box
    modules = sorted(module for module in house.lines if module.partition(".")[0] == room)
    of_folder = {folder: list(group) for folder, group in groupby(sorted(modules, key=house.folder), key=house.folder)}
    lines = sum(house.lines[module] for module in modules)
    parts = [_text(left, top - 16, room, 14, weight="bold")]
    parts += [_text(left, top - 4, f"{lines:,} in {len(modules)}", 10)]
    sizes = [(folder, float(sum(max(house.lines[m], 1) for m in group))) for folder, group in of_folder.items()]
    for folder, inner in tiles(sizes, box):
        folders[folder] = inner
        crowded = len(of_folder[folder]) > CROWDED
        for _, tile in tiles([(m, float(max(house.lines[m], 1))) for m in of_folder[folder]], inner):
            parts.append(_rect(tile, AMBER if crowded else TILE, PAPER, 0.6))
        parts.append(_rect(inner, "none", INK, 1.2 if folder != room else 0.8))
        if folder != room and inner[2] > 34 and inner[3] > 12:
            name = folder.removeprefix(f"{room}.")
            parts.append(_text(inner[0] + 3, inner[1] + 11, name, min(11, 1.7 * inner[2] / len(name))))
    return [*parts, _rect((left, top, side, side), "none", INK, 2)]


def _room_lines(house: House, rooms: dict[str, Box]) -> list[str]:
    """Draw the imports between rooms, from the bottom of the upper to the top of the lower, the more the thicker."""
    counts: Counter[tuple[str, str]] = Counter()
    for (importer, imported), count in house.imports.items():
        pair = importer.partition(".")[0], imported.partition(".")[0]
        if pair[0] != pair[1]:
            counts[pair] += count
    red = _in_circles(counts)
    parts = []
    for (importer, imported), count in sorted(counts.items()):
        (ax, ay, a, _), (bx, by, b, _) = rooms[importer], rooms[imported]
        below = ay + a < by
        start, end = (ax + a / 2, ay + a if below else ay), (bx + b / 2, by - TITLE if below else by + b)
        bend = (end[1] - start[1]) / 2
        path = f"M{start[0]:.1f} {start[1]:.1f}C{start[0]:.1f} {start[1] + bend:.1f} {end[0]:.1f} {end[1] - bend:.1f} "
        colour = RED if (importer, imported) in red else EDGE
        parts.append(
            f'<path d="{path}{end[0]:.1f} {end[1]:.1f}" fill="none" stroke="{colour}" stroke-opacity=".45" '
            f'stroke-width="{min(0.6 + count**0.5 / 3, 6):.1f}">'
            f"<title>{importer} imports {imported}: {count}</title></path>"
        )
    return parts


def _folder_lines(house: House, folders: dict[str, Box]) -> list[str]:
    """Draw the imports between folders of one room."""
    counts = house.edges()
    red = _in_circles(counts)
    parts = []
    for (importer, imported), count in sorted(counts.items(), key=lambda item: (item[0] in red, item[0])):
        if importer.partition(".")[0] != imported.partition(".")[0]:
            continue
        (ax, ay, aw, ah), (bx, by, bw, bh) = folders[importer], folders[imported]
        colour, width = (RED, 2.4) if (importer, imported) in red else (INK, min(0.4 + count**0.5 / 6, 2))
        parts.append(
            f'<line x1="{ax + aw / 2:.1f}" y1="{ay + ah / 2:.1f}" x2="{bx + bw / 2:.1f}" y2="{by + bh / 2:.1f}" '
            f'stroke="{colour}" stroke-opacity=".55" stroke-width="{width:.1f}">'
            f"<title>{importer} imports {imported}: {count}</title></line>"
        )
    return parts


def _in_circles(edges: Counter[tuple[str, str]]) -> set[tuple[str, str]]:
    groups = circles(edges)
    return {pair for pair in edges if any(set(pair) <= group for group in groups)}


def _rect(box: Box, fill: str, stroke: str, width: float) -> str:
    x, y, w, h = (round(value, 1) for value in box)
    return f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{fill}" stroke="{stroke}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, size: float, weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}" font-weight="{weight}"'
    return f'<text {place} fill="{INK}">{escape(text)}</text>'


def kept_summary(picture: str) -> dict[str, Any]:
    """Return the summary that an image keeps."""
    kept = re.search("<metadata>(.*?)</metadata>", picture, re.DOTALL)
    if not kept:
        raise ValueError("The image has no <metadata>. Run make house.")
    return dict(json.loads(unescape(kept[1])))


if __name__ == "__main__":
    PICTURE.write_text(draw(read_house()), encoding="utf8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
