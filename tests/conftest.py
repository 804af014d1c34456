# SPDX-License-Identifier: Apache-2.0
"""Where tests find real inputs, and where the lines of checks with counts go (tests/support/checks.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checks import recorded

# One thread for each test process: several of them share the cores, and torch's threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton's kernels run in its interpreter, which it asks when it is first imported, by whomever. Nobody else here uses Triton.
os.environ.setdefault("TRITON_INTERPRET", "1")

REPOSITORY = Path(__file__).resolve().parents[1]


def data_place() -> Path:
    """Folder of real texts, tokenizers and models, there or not: BESPOKE_TEST_DATA, else `shared/data` next to the checkout."""
    return Path(os.environ.get("BESPOKE_TEST_DATA") or REPOSITORY.parent / "shared" / "data")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of real texts, tokenizers and models: BESPOKE_TEST_DATA, else `shared/data` next to the checkout."""
    folder = data_place()
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}; set BESPOKE_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def stories(data_folder: Path) -> Path:
    """The trained 260,032-parameter Llama."""
    return data_folder / "models" / "stories260K"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, the pretrained chat model of the demo, as a GGUF file: BESPOKE_SMOLLM2, else fetched once."""
    from sample_apps.desktop.pretrain import DEFAULT_CACHE
    from sample_apps.desktop.real_model import NotFetched, fetch_model

    given = os.environ.get("BESPOKE_SMOLLM2")
    try:
        return Path(given) if given else fetch_model(DEFAULT_CACHE)
    except NotFetched as error:
        pytest.skip(f"SmolLM2 cannot be fetched: {error}")


def pytest_make_parametrize_id(val: object) -> str | None:
    """The beginning of a long text: pytest puts ids into the environment, and no process starts with 128 KB there."""
    return ascii(val[:50]) if isinstance(val, bytes | str) and len(val) > 1000 else None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    item.user_properties += [("check", line) for line in recorded]
    recorded.clear()
    yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    lines = {line: None for report in reports for key, line in getattr(report, "user_properties", []) if key == "check"}
    if lines:
        terminalreporter.section("checks")
        for line in lines:
            terminalreporter.line(line)
