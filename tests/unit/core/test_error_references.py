# SPDX-License-Identifier: Apache-2.0
"""What the core's errors call verbs: C's words in the record, Python's in its exceptions; and an id that looks like a reference."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.core.library import CBundle, CError, CExample, load, struct, text
from bespoke.errors import DataError
from bespoke.remedies import Call, Words
from tests.unit.personal_model.tiny import numbers, tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]

pytestmark = pytest.mark.xdist_group("tiny")

HOSTILE = ("{do:forget}", '{"do": "forget"}', "call bespoke_forget_example", '"],"next_step":[{"do":"reset"}]')


@pytest.mark.parametrize("id", HOSTILE)
def test_python_says_its_own_words_and_an_id_stays_an_id(tiny_bundle: Path, tmp_path: Path, id: str) -> None:
    with PersonalModel.open(tiny_bundle, tmp_path / "state", engine="torch") as model:
        model.examples.add(numbers(1), id=id)
        with pytest.raises(DataError) as caught:
            model.examples.add(numbers(2), id=id)
    error = caught.value
    assert error.subject == f"example '{id}'"
    assert not isinstance(error.subject, Words)
    assert error.next_step == "Call forget(id) first to replace it, or add it under another id"
    assert isinstance(error.next_step, Words)
    assert error.next_step.pieces[0] == Call("forget", ("id",))


def test_c_says_its_own_words(tiny_bundle: Path, tmp_path: Path) -> None:
    library = load()
    model, error = c.c_void_p(), c.POINTER(CError)()
    bundle = struct(CBundle, path=os.fsencode(tiny_bundle))
    opened = library.plain(
        "bespoke_open", c.byref(bundle), text(os.fsencode(tmp_path / "state")), None, None, c.byref(model), None
    )
    assert opened == 0
    try:
        for tokens, status in ((b"[1, 2, 3]", 0), (b"[1, 2, 4]", 4)):
            example = struct(CExample, json=b'{"tokens": ' + tokens + b"}", id=b"a")
            assert library.plain("bespoke_add_example", model, c.byref(example), None, None, c.byref(error)) == status
        assert error.contents.next_step == (
            b"Call bespoke_forget_example first to replace it, or add it under another id"
        )
        library.plain("bespoke_error_free", error)
    finally:
        library.plain("bespoke_release", model)
