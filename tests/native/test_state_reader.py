# SPDX-License-Identifier: Apache-2.0
"""States that the command line trained on the core: every promise holds, as the state reader finds it from the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.core import finding
from tests.support.bundles import tiny_core_bundle
from tests.support.checks import few_rows_of
from tests.support.reading import read_state
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

pytestmark = pytest.mark.xdist_group("core")


@pytest.mark.parametrize(("method", "steps"), few_rows_of([("mesp", 6), ("mezo", 203)], (1,)))
def test_every_promise_holds_after_each_verb(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, steps: int
) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    state = tmp_path / "alice"

    def look(forgotten: tuple[str, ...] = ()) -> dict[str, object]:
        found = read_state(state, tiny_core_bundle, forgotten)
        assert (found["broken"], found["left"]) == ([], [])
        return found

    with PersonalModel.open(tiny_core_bundle, state) as model:
        add_numbers(model)
        model.examples.add({"tokens": [*range(100, 115)]}, id="secret")
        assert model.engine == "executorch"
        model.train(run_steps=300, method=method, stop=lambda: True)  # a run of 300 steps, of which hardly any was made
        model.train(most_steps=steps)
    found = look()
    assert found["unfinished"] == 1
    assert (found["slots"], bool(found["journal"])) == ((1, True) if method == "mezo" else (2, False))
    bespoke("train", tiny_core_bundle, "--state", state, "--format", "json").ok()
    assert look()["unfinished"] == 0
    bespoke("train", tiny_core_bundle, "--state", state, "--run-steps", 3, "--method", method, "--format", "json").ok()
    assert look()["runs"] == 2
    bespoke("examples", "forget", tiny_core_bundle, "secret", "--state", state).ok()
    assert look((str([*range(100, 115)]),))["versions"] == 0
    bespoke("train", tiny_core_bundle, "--state", state, "--run-steps", 2, "--format", "json").ok()
    assert look((str([*range(100, 115)]),))["examples"] == 12
