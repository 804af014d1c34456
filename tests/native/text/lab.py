# SPDX-License-Identifier: Apache-2.0
"""The core's text code in one process (bindings/native/tests/text_lab.cpp)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.native.lab_process import answer_of, error_of

ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}


class TextLab:
    """What the core makes of texts. What it refuses is raised as the Python error of that name."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)

    def ask(self, what: str, **values: Any) -> Any:
        """EOFError where the process dies of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **values}).encode() + b"\n")
        self.process.stdin.flush()
        answer = answer_of(self.process)
        if "error" not in answer:
            return answer["value"]
        error = error_of(answer)
        assert all((answer["subject"], answer["got"], answer["expected"], answer["next_step"])), answer
        raise error

    def open(self, path: Path) -> dict[str, int]:
        found: dict[str, int] = self.ask("open", path=str(path))
        return found

    def encode(self, texts: Sequence[str], *, template: bool = False, previous: int | None = None) -> list[list[int]]:
        tokens: list[list[int]] = self.ask("encode", texts=list(texts), template=template, previous=previous)
        return tokens

    def decode(self, tokens: Sequence[Sequence[int]], skip_special: bool) -> list[str]:
        texts: list[str] = self.ask("decode", tokens=[list(ids) for ids in tokens], skip_special=skip_special)
        return texts

    def stream(self, tokens: Sequence[Sequence[int]], at_start: bool = True) -> list[list[str]]:
        """The piece of each token, and behind them what the end gives."""
        pieces: list[list[str]] = self.ask("stream", tokens=[list(ids) for ids in tokens], at_start=at_start)
        return pieces
