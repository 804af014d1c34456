# SPDX-License-Identifier: Apache-2.0
"""Verbs and settings as data: what is kept of them, and that their names in other languages are there."""

from __future__ import annotations

import json
import pickle

import pytest

from bespoke.errors import MAX_PART_BYTES, DataError
from bespoke.remedies import Words, do, from_json, setting
from bespoke.verbs import CAMEL_SETTINGS
from tests.conftest import REPOSITORY
from tests.support import c_header

BINDINGS = REPOSITORY / "bindings"


def test_a_reference_outlives_pickling_and_passing_on() -> None:
    error = DataError(
        "a", got="b", expected="c", next_step="Change " + setting("memory_mb", None) + ", or " + do("reset")
    )
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a: got b; expected c. Change memory_mb=None, or call reset()."
    for passed_on in (again, DataError("x", got="b", expected="c", next_step=error.next_step + "; then go on")):
        assert isinstance(passed_on.next_step, Words)
        assert passed_on.next_step.pieces[:4] == error.next_step.pieces


def test_a_text_of_the_core_is_said_in_the_words_of_python() -> None:
    pieces = ["Give ", {"setting": "memory_mb", "value": 64}, ", or ", {"do": "forget", "arguments": ["id"]}, " first"]
    assert from_json(pieces) == "Give memory_mb=64, or call forget(id) first"
    assert from_json([{"do": "abandon_run"}]) == "Call abandon_run()"
    assert from_json('{"do": "abandon_run"}') == '{"do": "abandon_run"}'  # a text
    assert from_json(["or ", {"do": "a_verb_of_tomorrow"}]) == "or a_verb_of_tomorrow"


def test_a_verb_that_is_not_there_is_no_reference() -> None:
    with pytest.raises(KeyError):
        do("abandon")


def test_texts_around_a_reference_are_made_printable_and_bounded() -> None:
    next_step = "Rename '\x1b[2J', or " + do("reset")
    shown = DataError("a", got="b", expected="c", next_step=next_step).next_step
    assert shown == "Rename '\\x1b[2J', or call reset()"
    assert isinstance(shown, Words)
    long = DataError("a", got="b", expected="c", next_step="x" * 10_000 + do("reset")).next_step
    assert len(long.encode()) <= MAX_PART_BYTES


def test_settings_have_their_names_in_c_kotlin_and_swift() -> None:
    header = c_header.declarations()
    folder = BINDINGS / "kotlin" / "core" / "src" / "main" / "kotlin" / "dev" / "bespoke"
    kotlin = "".join((folder / f"{name}.kt").read_text(encoding="utf-8") for name in ("Settings", "PersonalModel"))
    swift_folder = BINDINGS / "swift" / "Sources" / "Bespoke"
    swift = "".join(
        (swift_folder / f"{name}.swift").read_text(encoding="utf-8") for name in ("Settings", "PersonalModel")
    )
    for name, camel in CAMEL_SETTINGS.items():
        assert name == "train" or f" {name};" in header or f" {name}," in header or f"*{name};" in header, name
        assert f"{camel}:" in kotlin, camel
        assert f"{camel}:" in swift, camel


def test_other_languages_have_every_verb_that_errors_may_name() -> None:
    table = json.loads((BINDINGS / "schema" / "remedies.json").read_text(encoding="utf-8"))
    assert {"abandon_run", "add", "forget", "reset_for_new_base"} <= set(table["verbs"])
    assert table["verbs"]["forget"] == {
        "python": "examples.forget",
        "c": "bespoke_forget_example",
        "kotlin": "examples.forget",
        "swift": "examples.forget",
    }
