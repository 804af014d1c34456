# SPDX-License-Identifier: Apache-2.0
"""Every damaged and hostile state that the Python store refuses, in front of the core: tests/malformed_bundles, read by it.

Their tests are run again with the core's store in the place of the reader; the Python store still builds the states.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tests.malformed_bundles.test_malformed_state as malformed
from bespoke.errors import StateError
from bespoke.state import StateStore
from tests.malformed_bundles.test_malformed_state import (  # noqa: F401
    EDITS,
    filled,
    folder,
    test_a_database_of_somebody_else_is_not_touched,
    test_a_lost_database_is_no_new_state,
    test_a_planted_rollback_journal_is_not_played_back,
    test_a_refused_state_is_left_as_it_is,
    test_a_tensor_file_that_lies_under_a_right_hash,
    test_another_version_is_refused_and_named,
    test_every_header_byte_of_a_tensor_file_flipped,
    test_every_header_byte_of_the_database_flipped,
    test_every_header_byte_of_the_log_flipped_gives_an_earlier_state_or_an_error,
    test_something_else_in_the_place_of_a_file,
    test_something_else_in_the_place_of_a_side_file,
    test_the_file_that_the_liars_start_from_is_taken,
    test_truncated_files,
)
from tests.native.state_lab import CoreState, summary_of
from tests.unit.state.states import BASE, SHAPES, open_state

# The core reads an example's tokens, never its text.
NOT_READ = {what for what in EDITS if what.startswith("example ") and "rows" not in what and "large" not in what}


def plain(store: StateStore) -> Any:
    return json.loads(json.dumps(summary_of(store)))


@pytest.fixture(scope="module")
def whole(filled: Path) -> Any:  # noqa: F811
    with open_state(filled) as store:
        return plain(store)


@pytest.fixture(autouse=True)
def core_reads(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = native_build / "tests" / "state_lab"

    def read_all(state: Path) -> Any:
        with CoreState(program) as core:
            found = core.open(state).act("summary")
            for version in found["accepted"]:
                if version[1] is not None:
                    core.act("run", run=version[1])
            return found

    def open_by_both(state: Path, base: str = BASE, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> StateStore:
        """StateError where the core refuses; what it takes the Python store must take."""
        with CoreState(program) as core:
            core.open(state, base, shapes).act("lock")
        try:
            return open_state(state, base, dict(shapes))
        except StateError as error:
            raise AssertionError(f"the core took what the Python store refuses: {error}") from error

    class OpenedByBoth:
        @staticmethod
        def open(state: Path, *, base_sha256: str, adapter_shapes: Mapping[str, tuple[int, ...]]) -> StateStore:
            return open_by_both(state, base_sha256, adapter_shapes)

    monkeypatch.setattr(malformed, "read_all", read_all)
    monkeypatch.setattr(malformed, "open_state", open_by_both)
    monkeypatch.setattr(malformed, "summary", plain)
    monkeypatch.setattr(malformed, "StateStore", OpenedByBoth)
    # Headers without spaces, as both stores write them: the core takes no other, so a lie must be found by itself.
    compact = SimpleNamespace(dumps=lambda value: padded(json.dumps(value, separators=(",", ":"))))
    monkeypatch.setattr(malformed, "json", compact)


def padded(text: str) -> str:
    return text + " " * (-len(text) % 4)


@pytest.mark.parametrize("what", [what for what in EDITS if what not in NOT_READ])
def test_a_database_that_says_what_ours_never_says(folder: Path, what: str) -> None:  # noqa: F811
    malformed.test_a_database_that_says_what_ours_never_says(folder, what)


def test_a_tensor_twice_or_out_of_order(folder: Path) -> None:  # noqa: F811
    entries, data = malformed.good_entries()
    names = sorted(entries)
    for listed in ([names[0], names[0]], [names[1], names[0]]):
        places = ({"dtype": "F32", "shape": [2, 6], "data_offsets": [48 * n, 48 * (n + 1)]} for n in (0, 1))
        items = [f'"{name}":{json.dumps(place, separators=(",", ":"))}' for name, place in zip(listed, places, strict=True)]
        write_slot(folder, malformed.tensor_file(None, data[:96], text=padded("{" + ",".join(items) + "}").encode()))
        with pytest.raises(StateError, match="out of order"):
            malformed.read_all(folder)


def write_slot(folder: Path, content: bytes) -> None:  # noqa: F811
    malformed.the_slot(folder).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    malformed.edit(folder, "UPDATE slots SET sha256 = ?, bytes = ?", values=(digest, len(content)))
