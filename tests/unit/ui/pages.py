# SPDX-License-Identifier: Apache-2.0
"""`bespoke ui` as a process, asked over HTTP and in headless Chromium. Import the fixtures where they are used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bespoke import Budget, Personalizer, PersonalModel, Training
from bespoke.ui.base import BaseModel
from bespoke.ui.desk import Desk
from tests.support.bundles import made_once, shakespeare

CHROMIUM = shutil.which("chromium")
STEPS = 600  # seconds of training: long enough to be seen
QUESTION = "Once upon a time"
SLOW = 30_000  # milliseconds that a busy machine may take


@dataclass
class Served:
    link: str
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return self.link.partition("/#")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.link.partition('#token=')[2]}"}

    def does(self, path: str, **given: Any) -> Any:
        """What the page's server says, with the token."""
        status, said = answer(self, path, given, **self.authorization)
        assert status == 200, said
        return json.loads(said)["done"]


@contextmanager
def served(bundle: Path, state: Path, *options: str, before: Callable[[], None] | None = None) -> Iterator[Served]:
    """`before`: runs in the process before the program begins."""
    command = [sys.executable, "-m", "bespoke.cli", "ui", str(bundle), "--state", str(state), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=before)
    try:
        assert process.stdout is not None
        yield Served(process.stdout.readline().strip(), process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def answer(found: Served, path: str, given: dict[str, Any] | bytes, **headers: str) -> tuple[int, str]:
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    request = urllib.request.Request(found.address + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until(happened: Callable[[], Any], what: str) -> Any:
    """What it gives, as soon as that is true."""
    for _ in range(1200):
        if found := happened():
            return found
        time.sleep(0.05)
    raise AssertionError(f"never happened: {what}")


@pytest.fixture(scope="session")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, which answers in words."""

    def make(folder: Path) -> None:
        training = Training(sequence_lengths=(64,), batch_size=4, steps=STEPS, learning_rate=1e-3)
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


@pytest.fixture
def desk(bundle: Path, state: Path) -> Iterator[Desk]:
    with PersonalModel.open(bundle, state) as model:
        desk = Desk(model, state, BaseModel(bundle))
        yield desk
        desk.close()


def trains(desk: Desk, run_steps: int | None = None) -> dict[str, Any]:
    desk.train(run_steps)
    return ended(desk)


def ended(desk: Desk) -> dict[str, Any]:
    until(lambda: not desk.view({})["training"]["runs"], "the end of the training")
    return desk.view({})


def asked(desk: Desk, question: str = QUESTION) -> str:
    text = "".join(desk.ask(question))
    assert len(text) > 20
    return text


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
    try:
        with opened_tab(context, link) as page:
            yield page
    finally:
        context.close()


@contextmanager
def opened_tab(context: Any, link: str) -> Iterator[Any]:
    page = context.new_page()
    page.set_default_timeout(SLOW)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(link)
    yield page
    assert wrong == []  # errors of the page's own script


def expect(page: Any, selector: str) -> Any:
    """What becomes so. The page's own rules allow no eval, which `wait_for_function` would need."""
    from playwright.sync_api import expect as expecting

    expecting.set_options(timeout=SLOW)
    return expecting(page.locator(selector))


def trained(page: Any) -> None:
    page.locator("#verdict").wait_for()
    expect(page, "#stop").to_be_disabled()
