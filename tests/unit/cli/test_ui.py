# SPDX-License-Identifier: Apache-2.0
"""`bespoke ui`, driven in headless Chromium, with a core that trains. BESPOKE_PICTURES=FOLDER writes what the page looks like."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.unit.cli.commands import bespoke
from tests.unit.ui.pages import answer, expect, opened_page, opened_tab, served, trained, until

pytestmark = pytest.mark.xdist_group("cli")
OPEN_THE_LINK = "Open the link that bespoke ui printed: it has the token."


def test_the_token_leaves_the_address_and_the_notes_are_there(page: Any) -> None:
    assert "token" not in page.url
    page.locator("#examples li").nth(23).wait_for()
    assert page.locator("#count").inner_text() == "24"
    assert page.locator("#answers-now").inner_text() == "the base model answers"


def test_a_note_is_added_and_forgotten(page: Any) -> None:
    page.locator("#examples li").nth(23).wait_for()
    page.fill("#prompt", "Dinner?")
    page.fill("#completion", "Soup & <b>pepper</b>")
    page.check("#must-know")
    page.click("#add button")
    note = page.locator("#examples li", has_text="Soup & <b>pepper</b>")  # words, and no HTML
    note.wait_for()
    assert "Dinner?" in note.inner_text()
    assert "held out" not in note.inner_text()
    assert page.input_value("#completion") == ""
    note.get_by_role("button").click()
    note.wait_for(state="detached")
    assert page.locator("#examples li").count() == 24


def test_training_is_seen_as_it_goes_on_and_answers_stand_side_by_side(page: Any) -> None:
    page.fill("#question", "Once upon a time")
    page.click("#ask-button")
    now = page.locator(".sides > :last-child p")
    expect(page, ".sides > :last-child p").to_have_text(re.compile(".{20,}", re.DOTALL))
    expect(page, "#ask-button").to_be_enabled()
    before = now.inner_text()
    page.click("#begin")
    expect(page, "#phase").to_have_text(re.compile(r"step \d+ of 600"))
    expect(page, "#losses polyline").to_have_count(1)
    assert "limit" in page.locator("#memory-words").inner_text()
    trained(page)
    assert page.locator("#verdict").inner_text().startswith("Accepted: this version answers from now on. The loss on")
    assert page.locator("#answers-now").inner_text() == "version 1 answers"
    expect(page, ".sides > :first-child p").to_have_text(before)
    expect(page, ".sides > :last-child p").to_have_text(re.compile(".{20,}", re.DOTALL))  # asked again by itself
    expect(page, "#ask-button").to_be_enabled()
    after = now.inner_text()
    assert after not in ("", before)
    assert "best step" in page.locator("#table").text_content()
    pictures(page)
    page.click("#rollback")
    page.get_by_text("the base model answers").wait_for()
    expect(page, ".sides p").to_have_count(1)
    assert now.inner_text() == before
    assert page.locator("#reset").is_disabled()  # there is nothing left to forget


def pictures(page: Any) -> None:
    folder = os.environ.get("BESPOKE_PICTURES")
    for colours in ("light", "dark") if folder else ():
        page.emulate_media(color_scheme=colours)
        page.screenshot(path=Path(str(folder)) / f"page_{colours}.png", full_page=True)


@pytest.mark.slow
def test_a_training_that_is_stopped_goes_on(page: Any) -> None:
    page.fill("#run-steps", "600")
    page.click("#begin")
    expect(page, "#losses polyline").to_have_count(1)
    page.click("#stop")
    trained(page)
    assert "Not finished" in page.locator("#verdict").inner_text()
    assert page.locator("#begin").inner_text() == "Go on"
    expect(page, "#run-steps").to_be_disabled()  # the run has its length
    page.click("#begin")
    page.get_by_text("version 1 answers").wait_for()
    assert page.locator("#verdict").inner_text().startswith("Accepted")


@pytest.mark.slow
def test_what_was_learned_is_forgotten_when_asked_twice(browser: Any, bundle: Path, state: Path) -> None:
    with PersonalModel.open(bundle, state) as model:
        assert model.train().accepted
    with served(bundle, state) as found, opened_page(browser, found.link) as page:
        page.get_by_text("version 1 answers").wait_for()
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.click("#reset")
        assert page.locator("#answers-now").inner_text() == "version 1 answers"
        page.once("dialog", lambda dialog: dialog.accept())
        page.click("#reset")
        page.get_by_text("the base model answers").wait_for()


@pytest.mark.slow
def test_what_went_wrong_is_said(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state, "--memory-mb", "1") as found, opened_page(browser, found.link) as page:
        page.click("#begin")
        page.locator("#problem").wait_for()
        assert "Raise the memory budget" in page.locator("#problem").inner_text()


def test_no_token_another_name_and_another_page_are_refused(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        token = found.link.partition("token=")[2]
        for link in (
            found.address + "/",
            f"{found.address}/#token={'x' * len(token)}",
            f"{found.address}/?token={token}",
        ):
            with opened_page(browser, link) as other:
                expect(other, "#problem").to_have_text(OPEN_THE_LINK)
                assert other.locator("#examples li").count() == 0
        assert answer(found, "/view", {}, **found.authorization)[0] == 200
        assert answer(found, "/view", {}) == (403, OPEN_THE_LINK)
        assert answer(found, "/view", {}, Cookie=f"bespoke_token={token}") == (403, OPEN_THE_LINK)
        assert answer(found, "/view", {}, **found.authorization, Host="evil.example:80")[0] == 403
        assert answer(found, "/forget", {"id": "note 1"}, **found.authorization, Origin="http://evil.example")[0] == 403
        assert answer(found, f"/view?token={token}", {})[0] == 403  # a link reads, and does nothing


def test_two_pages_in_one_browser_do_not_know_of_each_other(
    browser: Any, bundle: Path, state: Path, tmp_path: Path
) -> None:
    """Cookies of 127.0.0.1 go to all its ports, and the second page's would take the place of the first one's."""
    context = browser.new_context()
    with (
        served(bundle, state) as found,
        opened_tab(context, found.link) as page,
        served(bundle, tmp_path / "other") as another,
        opened_tab(context, another.link) as other,
    ):
        expect(page, "#count").to_have_text("24")
        expect(other, "#count").to_have_text("0")
        for tab, count in ((page, "25"), (other, "1")):
            tab.fill("#completion", "Soup")
            tab.click("#add button")
            expect(tab, "#count").to_have_text(count)
        assert context.cookies() == []
        page.reload()
        expect(page, "#count").to_have_text("25")
        assert "token" not in page.url
    context.close()


def test_a_new_link_in_the_tab_of_an_old_one_opens_it(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found, opened_page(browser, found.address + "/#token=of-an-earlier-page") as page:
        expect(page, "#problem").to_have_text(OPEN_THE_LINK)
        page.goto(found.link)  # only the fragment is another, so the browser loads nothing
        expect(page, "#count").to_have_text("24")
        assert page.locator("#problem").is_hidden()


def test_what_is_no_request_of_the_page_is_refused_and_changes_nothing(bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        token = found.authorization
        for body in (b"[1]", b"{", b"[" * 100_000, b'{"completion": "' + b"x" * (1 << 20) + b'"}', b"\xff"):
            assert answer(found, "/add", body, **token)[0] == 400
        assert answer(found, "/add", {"completion": ["x"]}, **token)[0] == 409
        assert answer(found, "/ask", {}, **token)[0] == 409
        assert answer(found, "/train", {"run_steps": -1}, **token)[0] == 409
        assert answer(found, "/../pyproject.toml", {}, **token)[0] == 404
        nonsense = {
            "notes": ("1", -1, 10**30, True),
            "training": ([1], {"losses": "x"}, {"losses": -1}),
            "asked": (1, {}),
        }
        for has in ({part: value} for part, values in nonsense.items() for value in values):
            assert len(found.does("/view", **has)["notes"]["new"]) == 24


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_the_end_of_the_page_commits_what_trains(number: signal.Signals, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        found.does("/train")
        step = until(lambda: found.does("/view")["training"]["step"], "a step")
        found.process.send_signal(number)
        assert found.process.wait(timeout=60) in (0, 130)
    with PersonalModel.open(bundle, state) as model:
        run = model.current_run()
        assert run is not None
        assert run.step >= step  # the last commit by itself is seconds before


def test_a_port_that_is_taken_is_said(bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        port = found.address.rpartition(":")[2]
        answered = bespoke("ui", bundle, "--state", state, "--port", port)
        assert answered.code == 2
        assert "expected a free port" in answered.err
