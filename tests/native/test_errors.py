# SPDX-License-Identifier: Apache-2.0
"""Errors that the core's own code raises by real misuse: object, got, expected and next step are there, and say something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.misuses import MISUSES
from tests.support.misuse import Misuse, Monkey, check


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda misuse: misuse.kind.__name__)
def test_an_error_says_object_got_expected_and_next_step(misuse: Misuse, tmp_path: Path, monkeypatch: Monkey) -> None:
    check(misuse, tmp_path, monkeypatch)
