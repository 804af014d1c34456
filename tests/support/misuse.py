# SPDX-License-Identifier: Apache-2.0
"""What a person gets wrong, and the check of the error that it raises."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import BespokeError

Monkey = pytest.MonkeyPatch


@dataclass(frozen=True)
class Misuse:
    """Something that a person gets wrong, and what the message must say of it."""

    kind: type[BespokeError]
    do: Callable[[Path, Monkey], Any]
    subject: str
    got: str
    expected: str
    next_step: str
    exit_code: int


def raised(misuse: Misuse, folder: Path, monkeypatch: Monkey) -> BespokeError:
    with monkeypatch.context() as patches, pytest.raises(BespokeError) as caught:
        misuse.do(folder, patches)
    return caught.value


def check(misuse: Misuse, folder: Path, monkeypatch: Monkey) -> None:
    """The error's four parts say what they should, it has its exit code, and a copy of it says the same."""
    error = raised(misuse, folder, monkeypatch)
    assert type(error) is misuse.kind
    for part in ("subject", "got", "expected", "next_step"):
        text = getattr(error, part)
        assert isinstance(text, str)
        assert text.strip(), part
        assert not text.endswith("."), part  # the message sets its own dots
        assert getattr(misuse, part) in text, f"{part}: {text}"
        assert text in str(error)
    assert re.match(r"[A-Z]|pip install", error.next_step), error.next_step  # an instruction to the reader
    assert error.exit_code == misuse.exit_code
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
