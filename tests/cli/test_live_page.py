"""The page that ``eval --open`` serves while rows arrive."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

import pytest

from commands import run
from holdfast.cli import live_page
from holdfast.cli.live_page import LivePage
from holdfast.core.errors import UserError


def asked(page: LivePage, path: str, host: str = "") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", int(page.url.rstrip("/").rpartition(":")[2]), timeout=10)
    connection.putrequest("GET", path, skip_host=True)
    connection.putheader("Host", host or page.hosts[0])
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_the_page_is_made_again_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "REFRESH", 0.01)
    folder, made, several = tmp_path / "report", [], threading.Event()

    def make() -> None:
        made.append(len(made))
        if len(made) < 3:
            raise UserError("there are no rows")
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text(f"page {len(made)}")
        several.set()

    with LivePage(folder, make, browse=False) as page:
        status, headers, text = asked(page, "/")
        assert (status == 200 and "first rows" in text) or "page" in text
        assert several.wait(20)
        status, headers, text = asked(page, "/")
        assert text.startswith("page ") and headers["Refresh"] and headers["X-Frame-Options"] == "DENY"
        reader = threading.Thread(target=lambda: asked(page, "/"))
        reader.start()
    reader.join()
    assert (folder / "index.html").read_text() == f"page {len(made)}"  # the last page has all rows
    with pytest.raises(OSError):
        asked(page, "/")


def test_only_the_page_is_served_and_only_to_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "tables").mkdir(parents=True)
    (folder / "index.html").write_text("page")
    (folder / "tables" / "a.csv").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with LivePage(folder, lambda: None, browse=False) as page:
        assert page.url.startswith("http://127.0.0.1:")
        assert asked(page, "/tables/a.csv")[2] == "1" and asked(page, "/", page.hosts[1])[0] == 200
        for path in (
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/tables/",
            "/tables",
            "/link.txt",
            "/a%00b",
            "//etc/passwd",
        ):
            status, _, text = asked(page, path)
            assert status == 404 and not text, path
        for host in ("evil.example", f"evil.example:{page.url[:-1].rpartition(':')[2]}", "127.0.0.1"):
            assert asked(page, "/", host)[0] == 421
        page.asked = False  # nobody waits for the last page


def test_eval_opens_the_page_and_leaves_it_on_the_disk(
    photos: Path, toy_models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    out = tmp_path / "run"
    command = ("eval", photos, "--models", f"{toy_models}:colour", "--scenarios", "original,grey", "--out", out)
    said = run(*command, "--open").stdout
    assert f"The page is at {opened[0]} until the command ends." in said
    assert said.splitlines()[-1] == str(out / "report" / "index.html")
    page = (out / "report" / "index.html").read_text()
    assert "<h1" in page and 'http-equiv="refresh"' not in page
    refused = run(*command[:-1], "memory://bucket/run", "--open", code=2)
    assert "leave --open out" in refused.stderr
