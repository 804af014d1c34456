# SPDX-License-Identifier: Apache-2.0
"""Takes the pictures of the page in docs/how_to/images: twelve facts of the demo's person are trained, and answers shown.

python tools/page_pictures.py BUNDLE [--steps N]     a bundle of the demo's model; needs playwright and Chromium
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))  # this file is run as a script

from sample_apps.desktop.person import FACTS, SHOWN_FACT  # noqa: E402

from bespoke import PersonalModel  # noqa: E402

IMAGES = REPOSITORY / "docs" / "how_to" / "images"
SHOWN_FACTS = 12
WIDTH = 1080
LIMIT = ("--memory-mb", "125")  # drawn as a line above what the training takes
PATIENCE = 30 * 60_000  # milliseconds that a training may take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with PersonalModel.open(given.bundle, state) as model:
            for number, fact in enumerate(FACTS[:SHOWN_FACTS]):
                model.examples.add(
                    {"prompt": fact.question, "completion": fact.answer}, id=f"fact {number}", use="train"
                )
        command = [sys.executable, "-m", "bespoke.cli", "ui", str(given.bundle), "--state", str(state), *LIMIT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                take(server.stdout.readline().strip(), given.steps)
            finally:
                server.terminate()


def take(link: str, steps: int) -> None:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(link)
        page.locator("#run-steps").fill(str(steps))
        press(page, "#begin")
        page.locator("#verdict").wait_for()
        page.locator("#question").fill(SHOWN_FACT.question)
        press(page, "#ask-button")
        press(page, "#try")
        for at_work in (True, False):  # the button that ends an answer
            expect(page.locator("#end")).to_be_enabled(enabled=at_work)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=IMAGES / f"page_{scheme}.png", full_page=True)
        chromium.close()


def press(page: Any, button: str) -> None:
    """Clicks a button as soon as it can be clicked."""
    expect(page.locator(button)).to_be_enabled()
    page.locator(button).click()


if __name__ == "__main__":
    main()
