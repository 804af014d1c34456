# SPDX-License-Identifier: Apache-2.0
"""How a benchmark writes its table into README.md and docs/: every figure there was put there by a run.

A page holds a pair of markers, and what stands between them is replaced:

    <!-- figures:NAME -->
    <!-- /figures:NAME -->

Under the table stand the note, and the machine it was measured on. BESPOKE_FIGURES=print prints and writes nothing: for trying
a benchmark with few steps.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.support.processor import processor_name, speed_flags

Cell = str | int | float | None


def write_table(
    name: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = "", machine: str | None = None
) -> str:
    """Write the table between the markers of `name`, wherever they stand; returns its Markdown.

    Cells: None is a dash, a float has three significant digits, the rest as str() gives it. `machine` replaces the line about
    this processor, for what ran on another; "" leaves it out, for what did not run. AssertionError where no page has the markers.
    """
    table = markdown(header, rows)
    measured = "" if machine == "" else f"Measured on: {machine or this_machine()}."
    text = "\n\n".join(part for part in (table, note, measured) if part)
    return write_text(name, text)


def write_text(name: str, text: str) -> str:
    """Write `text` as it is between the markers of `name`: a sentence with figures, an answer that a model gave."""
    print(f"\n{name}\n{text}")
    if os.environ.get("BESPOKE_FIGURES") == "print":
        return text
    written = [path for path in pages() if _replace(path, name, text)]
    assert written, f"no page has the markers <!-- figures:{name} --> and <!-- /figures:{name} -->"
    return text


def markdown(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A Markdown table; columns of numbers are set to the right."""
    for row in rows:
        assert len(row) == len(header), f"{len(row)} cells under {len(header)} headings: {row}"
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(header))
    ]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---:" if right else "---" for right in numeric) + "|"]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def this_machine(threads: int | None = None) -> str:
    """Processor, its vector extensions, its cores and memory. Where torch is installed its threads, or these, and its version."""
    from importlib.metadata import PackageNotFoundError, version

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    have = ", ".join(speed_flags()) or "no known vector extension"
    processor = f"{processor_name()} ({have}), {os.cpu_count()} cores"
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return f"{processor}, {memory:.0f} GB of memory"
    used = f"threads: {threads}" if threads else f"torch threads: {os.environ.get('OMP_NUM_THREADS') or 'as many'}"
    return f"{processor}, {used}, {memory:.0f} GB of memory, torch {torch}"


def pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def _replace(path: Path, name: str, text: str) -> bool:
    begin, end = f"<!-- figures:{name} -->", f"<!-- /figures:{name} -->"
    page = path.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        return False
    before, rest = page.split(begin, 1)
    after = rest.split(end, 1)[1]
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
    return True
