# SPDX-License-Identifier: Apache-2.0
"""What a runtime reports that has proved itself by a bundle's golden vectors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bespoke.rules.report import ComputedBy


@dataclass(frozen=True)
class PassedCheck:
    """A check that passed: `compared` numbers, texts or files. `worst` is the largest share of its tolerance that a number uses."""

    what: str
    method: str | None
    sequence_length: int | None
    compared: int
    worst: float


@dataclass(frozen=True)
class VerifyReport:
    """The checks that passed.

    golden:        False for a bundle without golden vectors
    files:         files whose hash was computed; 0 if that was not asked for
    texts_skipped: golden texts of a bundle of format 1.0, whose tokenizer the core cannot read
    """

    golden: bool
    files: int
    checks: tuple[PassedCheck, ...]
    seconds: float
    texts_skipped: int = 0
    runtime: ComputedBy = "torch"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
