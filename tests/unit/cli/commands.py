# SPDX-License-Identifier: Apache-2.0
"""Runs a command line in this process, as the entry point does, and keeps what it said."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

from bespoke.cli import run


@dataclass(frozen=True)
class Answer:
    """Exit code, stdout and stderr of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON object that it must be."""
        return json.loads(self.out)

    def ok(self) -> Answer:
        assert self.code == 0, self.err
        return self


def bespoke(*arguments: object) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Answer(code, out.getvalue(), err.getvalue())
