# SPDX-License-Identifier: Apache-2.0
"""What both engines are asked in the benchmark of answers, and how their memory is read."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Self

import numpy as np
from tests.benchmarks.footprint import anonymous_in

PROMPTS, ANSWER_TOKENS, CONTEXT = (128, 512), 64, 1024
_INTERVAL_S = 0.002
_FILES = re.compile(rb"^RssFile:\s+(\d+) kB", re.MULTILINE)


def prompt(turn: int, count: int, vocab_size: int) -> list[int]:
    """Random tokens, others at each turn and for each `count`: an engine may know the beginning of the one before."""
    tokens: list[int] = np.random.default_rng((turn, count)).integers(0, vocab_size, count).tolist()
    return tokens


class Footprint:
    """The most anonymous memory and the most pages of files of a process, in bytes, while this is open."""

    def __init__(self, process: int) -> None:
        self._status = Path(f"/proc/{process}/status")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.anonymous = self.files = 0

    def read(self) -> None:
        text = self._status.read_bytes()
        self.anonymous = max(self.anonymous, anonymous_in(text))
        self.files = max(self.files, 1024 * sum(map(int, _FILES.findall(text))))

    def bytes(self, without: Self | None = None) -> dict[str, int]:
        """`without`: what another reading of the process has found before is taken off."""
        anonymous, files = (0, 0) if without is None else (without.anonymous, without.files)
        return {"anonymous": self.anonymous - anonymous, "files": self.files - files}

    def _watch(self) -> None:
        while not self._ended.is_set():
            self.read()
            time.sleep(_INTERVAL_S)

    def __enter__(self) -> Self:
        self.read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
