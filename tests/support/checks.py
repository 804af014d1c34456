# SPDX-License-Identifier: Apache-2.0
"""How a check with a count is sized, seeded and written down.

`make test-all` (BESPOKE_FULL=1) runs full counts, `make test` a hundredth: `count(10**6)` says how many. `new_seed()` is another
each time and printed with a failure; BESPOKE_SEED gives it again. At its end a check calls `record_check(name, {"what": how many},
seed)`: the line stands at the end of pytest's output, and in full mode also in docs/reference/checks.md, one row a check, a new one
in the place of the old one, with commit, date and machine. Processes that write at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.processor import processor_name, speed_flags

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "reference" / "checks.md"
BEGIN, END = "<!-- checks -->", "<!-- /checks -->"
HEADER = "| check | counts | seed | commit | date | machine |\n|---|---|---|---|---|---|\n"

recorded: list[str] = []  # records of the running test; tests/conftest.py adds them to pytest's summary


def full() -> bool:
    return os.environ.get("BESPOKE_FULL") == "1"


def count(whole: int) -> int:
    """`whole` in full mode, else a hundredth."""
    return whole if full() else max(1, whole // 100)


def few_of(names: Iterable[Any], few: Collection[Any]) -> list[Any]:
    """Parameters of tests that take seconds for each: those beside the few are of the full counts."""
    import pytest  # here: programs that measure themselves import this module too

    return [name if name in few else pytest.param(name, marks=pytest.mark.slow) for name in names]


def few_rows_of(rows: Sequence[tuple[Any, ...]], few: Collection[int]) -> list[Any]:
    """The same for rows of several parameters, of which the few are given by their place."""
    import pytest

    return [row if place in few else pytest.param(*row, marks=pytest.mark.slow) for place, row in enumerate(rows)]


def new_seed() -> int:
    given = os.environ.get("BESPOKE_SEED")
    seed = int(given) if given else random.SystemRandom().randrange(2**31)
    print(f"seed {seed}; to have it again: BESPOKE_SEED={seed}")
    return seed


def record_check(name: str, counts: Mapping[str, object], seed: int | None = None, page: Path = PAGE) -> None:
    """`counts` by what was counted, in its order. `name` is the row's key: a short phrase, the same at each run."""
    counted = ", ".join(f"{_shown(value)} {what}" for what, value in counts.items())
    recorded.append(f"{name}: {counted}" + ("" if seed is None else f"; seed {seed}"))
    if not full():
        return
    cells = [name, counted, "-" if seed is None else str(seed), _commit(), f"{datetime.now(UTC):%Y-%m-%d}", _machine()]
    row = "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
    lock = Path(os.environ.get("TMPDIR", "/tmp")) / f"bespoke_checks_{os.getuid()}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        table, after = rest.split(END)
        rows = [line for line in table.splitlines()[3:] if line and not line.startswith(f"| {name} |")]
        page.write_text(
            f"{before}{BEGIN}\n{HEADER}" + "\n".join(sorted([*rows, row])) + f"\n{END}{after}", encoding="utf-8"
        )


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _commit() -> str:
    """With a plus where something tracked was changed since, this page aside."""
    head = _git("rev-parse", "--short", "HEAD") or "unknown"
    page = f":!{PAGE.relative_to(REPOSITORY)}"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", page) else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()


def _machine() -> str:
    return f"{processor_name()} ({', '.join(speed_flags()) or '-'}), {os.cpu_count()} cores"
