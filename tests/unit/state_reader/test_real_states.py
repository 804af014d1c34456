# SPDX-License-Identifier: Apache-2.0
"""States that the command line made on torch: every promise holds after each verb, and nothing is left of what was forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.bundles import stories_bundle, write_jsonl
from tests.support.reading import read_state
from tests.unit.cli.commands import bespoke

__all__ = ["stories_bundle"]


NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ivy", "Jan", "Kit", "Lou"]


@pytest.mark.slow
def test_every_promise_holds_after_each_verb(stories_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "alice"
    # So much alike that a few steps on some of them help with all of them.
    said = [
        {"text": f"My cat {name} eats cold soup with salt, and my cat {name} sleeps in the red boat."} for name in NAMES
    ]
    examples = write_jsonl(tmp_path / "said.jsonl", said)
    seen: list[str] = []

    def run(*arguments: object, forgotten: tuple[str, ...] = ()) -> dict[str, Any]:
        bespoke(*arguments, "--state", state, "--format", "json").ok()
        found = read_state(state, stories_bundle, forgotten)
        assert (found["broken"], found["left"]) == ([], [])
        seen.append(found["digest"])
        return found

    # The adapter is to be accepted, whatever it does to the bundle's own text.
    settings = ("--learning-rate", 0.01, "--general-tolerance", 100)
    trained = run("train", stories_bundle, "--examples", examples, "--run-steps", 6, *settings)
    assert (trained["examples"], trained["validation"], trained["versions"], trained["unfinished"]) == (12, 2, 1, 0)
    assert run("train", stories_bundle, "--run-steps", 3)["newest_run"]["step"] == 3
    assert run("rollback", stories_bundle)["versions"] < 2
    assert run("train", stories_bundle, "--run-steps", 2, *settings)["versions"] > 0
    ids = [
        one["id"]
        for one in bespoke("examples", "list", stories_bundle, "--state", state, "--format", "json").json["examples"]
    ]
    left = run("examples", "forget", stories_bundle, ids[6], forgotten=(said[6]["text"],))
    assert (left["examples"], left["versions"]) == (11, 0)
    run("reset", stories_bundle, forgotten=(said[6]["text"],))
    assert len(set(seen)) == len(seen)
