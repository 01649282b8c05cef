"""The review page when things come in an unlucky order; each order is made, none is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from review_world import Reviewer, answer_sheet, campaign, standing

from browsing import Held
from web_server import Serving

pytestmark = pytest.mark.slow
DISK = """() => {
    window.gates = {};
    window.writes = [];
    for (const work of ["put", "delete"]) {
        const before = IDBObjectStore.prototype[work];
        IDBObjectStore.prototype[work] = function (...given) {
            this.transaction.work = work;
            window.writes.push(`${work} ${JSON.stringify(given)}`);
            return before.apply(this, given);
        };
    }
    const { set } = Object.getOwnPropertyDescriptor(IDBTransaction.prototype, "oncomplete");
    Object.defineProperty(IDBTransaction.prototype, "oncomplete", {
        set(done) { set.call(this, async (event) => { await window.gates[this.work]?.promise; done(event); }); },
    });
}"""
"""The browser's own store answers only while its gate is open, as on a slow disk."""

HALF = """() => {
    const before = window.fetch;
    window.fetch = async (url, options) => {
        const answer = await before(url, options);
        if (!url.endsWith("/finish")) return answer;
        window.fetch = before;
        return new Response(new ReadableStream({ pull: (body) => body.error(new TypeError("network error")) }));
    };
}"""
"""The server takes a set, and the connection breaks in the middle of its answer: it is sent again, and counts once."""


def reviewer(browser: Any, server: Serving, campaign_id: int) -> Reviewer:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    server.log_in(context)
    one = Reviewer(context.new_page(), server.url, campaign_id, server.state)
    one.open()
    one.examples(questions=1)
    return one


def saving(one: Reviewer) -> str:
    return str(one.page.locator("#saving").text_content())


def saved(one: Reviewer) -> None:
    one.page.wait_for_function("() => document.getElementById('saving').textContent === 'saved'")


def test_nothing_is_called_saved_too_early(browser: Any, server: Serving, tmp_path: Path) -> None:
    one = reviewer(browser, server, campaign(server.state, tmp_path, kind="oracle"))
    one.judge(1, questions=1)
    saved(one)
    # The browser's own store is slow.
    one.page.evaluate(DISK)
    one.page.evaluate("() => { gates.put = Promise.withResolvers(); }")
    one.judge(2, questions=1)
    assert saving(one) == "saving …"
    one.page.evaluate("() => gates.put.resolve()")
    one.at("Image 3")
    saved(one)
    # The server refuses a vote: until it was sent again, and taken, it is not saved.
    tasks, votes = Held(one.page, "**/task"), Held(one.page, "**/votes")
    one.judge(3, questions=1)
    votes.next().fulfill(status=409, json={"detail": "this task is over"})
    task = tasks.next()
    assert saving(one) == "", "no one knows yet whether it may be sent again"
    task.continue_()
    again = votes.next()
    assert saving(one) == "saving …"
    again.continue_()
    saved(one)
    assert len(standing(server.state)) == 3


def test_the_set_is_sent_while_the_browsers_store_is_slow(browser: Any, server: Serving, tmp_path: Path) -> None:
    one = reviewer(browser, server, campaign(server.state, tmp_path, kind="oracle"))
    for number in range(1, 8):
        one.judge(number, questions=1)
    one.at("Image 8")
    votes, finish = Held(one.page, "**/votes"), Held(one.page, "**/finish")
    one.judge(8, questions=1)
    one.state("review")
    one.page.evaluate(DISK)
    one.page.evaluate("() => { gates.put = Promise.withResolvers(); }")
    one.press("Enter")
    one.press("ArrowLeft")
    assert one.state("review", "picture") == "review", "what is on its way cannot be changed by key either"
    votes.next().continue_()
    sent = finish.next()
    one.page.evaluate("() => { gates.delete = Promise.withResolvers(); }")
    sent.continue_()
    one.page.wait_for_function("() => writes.some(one => one.startsWith('delete') && one.includes('finish'))")
    # Sent and answered, and only now the store has kept that it was to be sent.
    one.page.evaluate("() => gates.put.resolve()")
    one.page.evaluate("() => gates.delete.resolve()")
    assert one.state("finished", "discarded", "expired", "intro") == "finished"


def test_a_question_about_the_set_before_is_answered_late(browser: Any, server: Serving, tmp_path: Path) -> None:
    one = reviewer(browser, server, campaign(server.state, tmp_path, kind="oracle"))
    for number in range(1, 9):
        token = one.judge(number, questions=1)
    one.state("review")
    one.press("ArrowLeft")
    one.at("Image 8")
    tasks, votes = Held(one.page, "**/task"), Held(one.page, "**/votes")
    one.press("n" if answer_sheet(server.state)[token][1] else "y")
    votes.next().fulfill(status=409, json={"detail": "this task is over"})
    task = tasks.next()  # the page asks whether the set can be opened again
    one.state("review")
    one.page.evaluate(HALF)
    one.press("Enter")
    assert one.state("finished", "discarded", "expired") == "finished"
    one.page.get_by_role("button", name="Another set", exact=True).click()
    one.state("loading")
    task.continue_()
    tasks.stop()
    assert one.state("intro", "expired") == "intro"
