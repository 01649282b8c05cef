"""The site of ``make docs``: complete, and at home on a disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_blocks import PAGES, ROOT, outside
from playwright.sync_api import Page, sync_playwright

import holdfast
from browsing import serious
from holdfast import testing
from holdfast.cli.main import app
from holdfast.core.schema import PREDICTIONS

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
LOADING = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``make docs`` does, warnings being errors."""
    out = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class _Loads(HTMLParser):
    """What a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADING.get(tag, ""))
        if address:
            self.found.append(address)


def test_nothing_comes_from_the_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf8"))
        outside = [one for one in loads.found if re.match(r"(?:[a-z]+:)?//", one)]
        assert not outside, f"{page.relative_to(site)} loads {outside}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", style.read_text(encoding="utf8"))


def test_search_and_pages_work_from_disk(site: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no chromium; make system installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        _search(page, "Nadeau")
        assert page.locator(".md-search-result__link").first.get_attribute("href")
        page.set_viewport_size({"width": 390, "height": 844})
        for name in ("tutorial.html", "statistics/scores.html", "api/index.html", "commands.html"):
            page.goto((site / name).as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} px too wide for a phone"
            assert (name, serious(page)) == (name, [])
        browser.close()
    assert asked and all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked)


def test_links_lead_somewhere_in_a_clone() -> None:
    """A page that only the site has is called so: ``[verbs](verbs.md) (on the site)``."""
    dead = []
    for page in PAGES:
        for link in re.finditer(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)(?! \(on the site\))", outside(page)):
            target = page.parent / link[1] if link[1] else page
            if not link[1].startswith(("http:", "https:", "mailto:")) and not (
                target.exists() and (not link[2] or target.suffix != ".md" or link[2] in _anchors(target))
            ):
                dead.append(f"{page.relative_to(ROOT)}: {link[0][2:-1]}")
    assert not dead


def _anchors(page: Path) -> set[str]:
    """The names of a page's headings, as code hosts and MkDocs make them, and the anchors that it sets itself."""
    headings = re.findall(r"^#+ (.*)$", outside(page), re.M)
    plain = (re.sub(r"\]\([^)]*\)|[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r" ", "-", heading) for heading in plain} | set(re.findall(r'<a id="([^"]+)">', outside(page)))


def test_every_command_is_shown_and_explained(site: Path) -> None:
    command: Any = typer.main.get_command(app)
    verbs = {name for name, verb in command.commands.items() if not verb.hidden}
    reference = (site / "commands.html").read_text(encoding="utf8")
    assert not {name for name in verbs if f'id="holdfast-{name}' not in reference}
    text = "".join(page.read_text(encoding="utf8") for page in PAGES)
    assert not {name for name in verbs if not re.search(rf"\bholdfast {name}\b", text)}


def test_the_page_of_columns_is_that_of_the_schema(site: Path) -> None:
    page = (site / "columns.html").read_text(encoding="utf8")
    assert re.findall(r"<td><code>(\w+)</code></td>", page) == PREDICTIONS.names


def test_every_public_name_and_card_is_shown(site: Path) -> None:
    reference = "".join(page.read_text(encoding="utf8") for page in (site / "api").glob("*.html"))
    identifiers = set(re.findall(r'id="holdfast\.[\w.]*?(\w+)"', reference))
    assert set(holdfast.__all__) | set(testing.__all__) <= identifiers
    assets = ROOT / "src" / "holdfast" / "assets"
    for card in assets.rglob("README.md"):
        page = site / "cards" / card.parent.relative_to(assets).with_suffix(".html")
        first = card.read_text(encoding="utf8").splitlines()[0].lstrip("# ")
        assert first in page.read_text(encoding="utf8")


def test_every_statistic_named_is_there() -> None:
    text = (ROOT / "docs" / "statistics" / "index.md").read_text(encoding="utf8")
    modules = set(re.findall(r"`stats\.([\w.]+)`", text))
    assert len(modules) > 20
    stats = ROOT / "src" / "holdfast" / "stats"
    for name in modules:
        path = stats / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or path.is_dir() or path.parent.with_suffix(".py").exists(), name


def _search(page: Page, word: str) -> None:
    page.locator("[data-md-component=search-query]").first.click()
    page.keyboard.type(word)
    page.locator(".md-search-result__link").first.wait_for(state="attached", timeout=120_000)
