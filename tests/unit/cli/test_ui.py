# SPDX-License-Identifier: Apache-2.0
"""`bespoke ui`, driven in headless Chromium, with a core that trains. BESPOKE_PICTURES=FOLDER writes what the page looks like."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bespoke import Budget, Personalizer, PersonalModel, Training
from tests.bundles import made_once, shakespeare
from tests.unit.cli.commands import bespoke

pytestmark = pytest.mark.xdist_group("cli")
CHROMIUM = shutil.which("chromium")
STEPS = 600  # seconds of training: long enough to be seen
SLOW = 30_000  # milliseconds that a busy machine may take


@dataclass
class Served:
    link: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return self.link.partition("/?")[0]


@contextmanager
def served(bundle: Path, state: Path, *options: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "bespoke.cli", "ui", str(bundle), "--state", str(state), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stdout is not None
        yield Served(process.stdout.readline().strip(), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, which answers in words."""

    def make(folder: Path) -> None:
        training = Training(sequence_lengths=(64,), batch_size=4, steps=STEPS, learning_rate=2e-3)
        settings = {"context": 192, "training": training, "budget": Budget(memory_mb=20), "data": None}
        Personalizer(stories, {"mesp": {"update": "adamw"}}, "executorch", **settings).build(folder / "bundle")

    return made_once(tmp_path_factory, "ui-bundle", make) / "bundle"


@pytest.fixture
def notes(data_folder: Path) -> list[dict[str, Any]]:
    return shakespeare(data_folder, 24)


@pytest.fixture
def state(bundle: Path, notes: list[dict[str, Any]], tmp_path: Path) -> Path:
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        for number, note in enumerate(notes):
            model.examples.add(note, id=f"note {number}")
    return tmp_path / "state"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here: tools/install_system.sh installs it")
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, bundle: Path, state: Path) -> Iterator[Any]:
    with served(bundle, state) as found, opened_page(browser, found.link) as page:
        yield page


@contextmanager
def opened_page(browser: Any, link: str, **settings: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1100, "height": 900}, **settings)
    page = context.new_page()
    page.set_default_timeout(SLOW)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(link)
    try:
        yield page
        assert wrong == []  # of the page's own script
    finally:
        context.close()


def trained(page: Any) -> None:
    page.locator("#verdict").wait_for()
    expect(page, "#stop").to_be_disabled()


def expect(page: Any, selector: str) -> Any:
    """What becomes so. The page's own rules allow no eval, which `wait_for_function` would need."""
    from playwright.sync_api import expect as expecting

    expecting.set_options(timeout=SLOW)
    return expecting(page.locator(selector))


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
    now = page.locator(".sides > div").nth(1).locator("p")
    expect(page, ".sides > :last-child p").to_have_text(re.compile(".{20,}"))
    expect(page, "#ask-button").to_be_enabled()
    before = now.inner_text()
    page.click("#begin")
    expect(page, "#phase").to_have_text(re.compile(r"step \d+ of 600"))
    expect(page, "#losses polyline").to_have_count(1)
    assert "limit" in page.locator("#memory-words").inner_text()
    trained(page)
    assert page.locator("#verdict").inner_text().startswith("Accepted: this version answers from now on. The loss on")
    assert page.locator("#answers-now").inner_text() == "version 1 answers"
    page.get_by_text("base model", exact=True).wait_for()  # asked again, without being told to
    expect(page, "#ask-button").to_be_enabled()
    assert page.locator(".sides > div").nth(0).locator("p").inner_text() == before
    after = now.inner_text()
    assert after not in ("", before)
    assert "best step" in page.locator("#table").text_content()
    pictures(page)
    page.click("#rollback")
    page.get_by_text("the base model answers").wait_for()
    assert page.locator(".sides > div").nth(1).locator("p").inner_text() == before
    assert page.locator("#reset").is_disabled()  # there is nothing left to forget


def pictures(page: Any) -> None:
    folder = os.environ.get("BESPOKE_PICTURES")
    for colours in ("light", "dark") if folder else ():
        page.emulate_media(color_scheme=colours)
        page.screenshot(path=Path(str(folder)) / f"page_{colours}.png", full_page=True)


@pytest.mark.slow
def test_a_training_that_is_stopped_goes_on(page: Any) -> None:
    page.fill("#steps", "600")
    page.click("#begin")
    expect(page, "#losses polyline").to_have_count(1)
    page.click("#stop")
    trained(page)
    assert "Not finished" in page.locator("#verdict").inner_text()
    assert page.locator("#begin").inner_text() == "Go on"
    page.fill("#steps", "")
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


def test_a_second_browser_another_name_and_another_page_are_refused(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        token = found.link.partition("token=")[2]
        cookie = {"Cookie": f"bespoke_token={token}"}
        with opened_page(browser, found.link) as page:
            page.locator("#examples li").nth(23).wait_for()
        with opened_page(browser, found.address + "/") as other:
            assert "Open the link that bespoke ui printed" in other.content()
        with opened_page(browser, f"{found.address}/?token={'x' * len(token)}") as other:
            assert "Open the link that bespoke ui printed" in other.content()
        assert answer(found, "/view", {}, **cookie)[0] == 200
        assert answer(found, "/view", {}) == (403, "Open the link that bespoke ui printed: it has the token.")
        assert answer(found, "/view", {}, **cookie, Host="evil.example:80")[0] == 403
        assert answer(found, "/forget", {"id": "note 1"}, **cookie, Origin="http://evil.example")[0] == 403
        assert answer(found, f"/view?token={token}", {})[0] == 403  # a link reads, and does nothing


def test_what_is_no_request_of_the_page_is_refused_and_changes_nothing(bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        cookie = {"Cookie": f"bespoke_token={found.link.partition('token=')[2]}"}
        for body in (b"[1]", b"{", b"[" * 100_000, b'{"completion": "' + b"x" * (1 << 20) + b'"}', b"\xff"):
            assert answer(found, "/add", body, **cookie)[0] == 400
        assert answer(found, "/add", {"completion": ["x"]}, **cookie)[0] == 409
        assert answer(found, "/ask", {}, **cookie)[0] == 409
        assert answer(found, "/train", {"steps": -1}, **cookie)[0] == 409
        assert answer(found, "/../pyproject.toml", {}, **cookie)[0] == 404
        assert len(json.loads(answer(found, "/view", {}, **cookie)[1])["done"]["examples"]) == 24


def answer(found: Served, path: str, given: dict[str, Any] | bytes, **headers: str) -> tuple[int, str]:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    request = urllib.request.Request(found.address + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_the_end_of_the_page_commits_what_trains(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        with opened_page(browser, found.link) as page:
            page.click("#begin")
            expect(page, "#losses polyline").to_have_count(1)
        found.process.send_signal(signal.SIGINT)
        assert found.process.wait(timeout=60) in (0, 130)
    with PersonalModel.open(bundle, state) as model:
        run = model.current_run()
        assert run is None or run.step > 0


def test_a_port_that_is_taken_is_said(bundle: Path, state: Path) -> None:
    with served(bundle, state) as found:
        port = found.address.rpartition(":")[2]
        answered = bespoke("ui", bundle, "--state", state, "--port", port)
        assert answered.code == 2
        assert "expected a free port" in answered.err
