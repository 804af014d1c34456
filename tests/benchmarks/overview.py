# SPDX-License-Identifier: Apache-2.0
"""The one table of README.md: five comparisons, out of what the benchmarks have written on docs/reference/figures.md.

Nothing is measured here. A benchmark whose table is a source calls `write_overview` after it has written its own.
"""

from __future__ import annotations

import os
import re

from tests.benchmarks.figures import Cell, markdown, write_text
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference" / "figures.md"
Row = dict[str, str]


def write_overview() -> None:
    """Nothing where figures are only printed: the page then holds those of another run."""
    if os.environ.get("BESPOKE_FIGURES") != "print":
        write_text("overview", overview(PAGE.read_text(encoding="utf-8")))


def overview(page: str) -> str:
    """The table and its note. AssertionError or StopIteration where a source lacks a row."""
    rows = [
        _peak_and_paper(page, "Qwen2.5-0.5B"),
        _peak_and_paper(page, "Qwen2.5-1.5B"),
        _peak_and_peft(page),
        _seconds_and_peft(page, "Qwen2.5-0.5B"),
        _seconds_and_peft(page, "Qwen2.5-1.5B"),
    ]
    measured = re.search(r"^Measured on: (.+)$", text_of(page, "core_speed"), re.MULTILINE)
    assert measured, "core_speed does not say where it was measured"
    note = (
        "Exact gradients (`mesp`) on one row of 256 tokens, rank 8, random weights; SGD on the device core, AdamW in the torch "
        f"runtime. Peak memory is that of the whole process. Seconds: measured on {measured[1]}"
    )
    return "\n\n".join([markdown(("figure", "bespoke", "compared with", "theirs"), rows), note])


def text_of(page: str, name: str) -> str:
    """What stands between the markers of `name`."""
    found = re.search(rf"^<!-- figures:{name} -->\n(.*?)^<!-- /figures:{name} -->$", page, re.MULTILINE | re.DOTALL)
    assert found, f"no figures of {name}"
    return found[1]


def table(page: str, name: str) -> list[Row]:
    """The rows between the markers of `name`, by heading."""
    lines = [line for line in text_of(page, name).splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(header, row, strict=True)) for row in rows]


def _peak_and_paper(page: str, model: str) -> list[Cell]:
    row = next(
        r for r in table(page, "core_memory") if (r["model"], r["method"], r["sequence"]) == (model, "`mesp`", "256")
    )
    ours, paper = row["peak, MB"], row["MeSP's paper, MB"]
    built = row["built for, MB"]
    return [
        f"peak memory, {model}, device core, built for {built} MB",
        f"{ours} MB",
        "MeSP's paper, on a phone",
        f"{paper} MB",
    ]


def _peak_and_peft(page: str) -> list[Cell]:
    ours, peft = table(page, "full_size")
    model, memory = next(iter(ours)).split(",")[0], "memory over idle, MB"
    against = "torch + peft in the same run, fp32, gradient checkpointing"
    return [
        f"memory over the idle process, {model}, torch runtime",
        f"{ours[memory]} MB",
        against,
        f"{peft[memory]} MB",
    ]


def _seconds_and_peft(page: str, model: str) -> list[Cell]:
    """The smallest plan that was timed, which is the slowest."""
    runs = {row["runs"]: row["seconds a step"] for row in table(page, "core_speed") if row["model"] == model}
    core = next(name for name in runs if name.startswith("core"))
    peft = {name.removeprefix("torch + peft, "): seconds for name, seconds in runs.items() if "peft" in name}
    against = f"torch + peft in the same run, {' / '.join(peft)}"
    return [f"seconds a step, {model}, device {core}", f"{runs[core]} s", against, f"{' / '.join(peft.values())} s"]
