# SPDX-License-Identifier: Apache-2.0
"""Writer of the tables of docs/reference/devices.md, from the reports of `bespoke bench` in docs/reference/devices.

    python tools/devices_page.py

A file there is a report as the command wrote it, with three texts more, which its sender adds: `device` (what it is sold as),
`measured_by` and `note` (what else ran, what was done against heat; it may be empty).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bespoke.cli.benching import place, short
from bespoke.errors import DataError
from bespoke.rules.bench_report import BenchReport, Spread

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "devices.md"
FOLDER = PAGE.with_suffix("")
ADDED = ("device", "measured_by", "note")  # to the report
PRODUCTS = ("forward", "transposed", "head")
_REPORT = TypeAdapter(BenchReport)


@dataclass(frozen=True)
class Entry:
    """A report of the folder, and what its sender said of it."""

    file: str
    device: str
    measured_by: str
    note: str
    report: BenchReport


def read_entry(path: Path) -> Entry:
    """Raises DataError for a file that is no whole report, or that lacks a text that its sender adds."""
    try:
        fields: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _wrong(path, f"no JSON ({error})", "a report of `bespoke bench --json`") from None
    added = [fields.pop(name, None) for name in ADDED] if isinstance(fields, dict) else [None]
    if not all(isinstance(text, str) for text in added) or not all(added[:2]):
        raise _wrong(path, "an entry without all of them", f"the report with the texts {', '.join(ADDED)}")
    try:
        report = _REPORT.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _wrong(
            path, f"{place}: {first['msg']}", "the fields of bindings/schema/bench_report.schema.json"
        ) from None
    if report.quick:
        raise _wrong(path, "a report of --quick, whose figures do not count", "one without it")
    return Entry(path.name, *added, report=report)


def _wrong(path: Path, got: str, expected: str) -> DataError:
    return DataError(
        f"{FOLDER.name}/{path.name}",
        got=got,
        expected=expected,
        next_step="See docs/reference/devices.md, 'Send one in'",
    )


def tables(entries: Sequence[Entry]) -> dict[str, str]:
    """Returns tables in Markdown by the names of their markers: who measured what, rates of the kernels, and bundles."""
    rates = (
        *("1 row, x W^T, Gweights/s", "1 row, g W, Gweights/s"),
        *(f"256 rows, {name}, GFLOP/s" for name in ("x W^T", "g W", "head")),
    )
    return {
        "devices": _table(
            ("device", "processor", "cores", "memory, GB", "system", "core", "load before", "measured by", "note"),
            [_described(entry) for entry in entries],
        ),
        "device_rates": _table(
            ("device", "instruction set", "on", *rates, "reads, GB/s", "products of a step, s"),
            [row for entry in entries for row in _rates(entry)],
        ),
        "device_bundles": _table(
            ("device", "bundle", "method", "length", "budget, MB", "peak, MB", "seconds a step", "tokens a second"),
            [row for entry in entries for row in _bundle(entry)],
        ),
    }


def _described(entry: Entry) -> list[str]:
    report = entry.report
    hidden = f", without {report.masked_features}" if report.masked_features else ""
    cores = " + ".join(
        f"{one.count}" + (f" x {one.part}" if one.part else "") + (f" at {one.max_mhz} MHz" if one.max_mhz else "")
        for one in report.cores
    )
    return [
        f"[{entry.device}](devices/{entry.file})",
        f"{report.processor or '-'} ({', '.join(report.features) or 'baseline'}{hidden})",
        cores,
        f"{report.memory_bytes / 1e9:.1f}",
        f"{report.system.name} {report.system.version}, {report.system.architecture}",
        report.core_version,
        "-" if report.load_average is None else f"{report.load_average:.2f}",
        entry.measured_by,
        entry.note or "-",
    ]


def _rates(entry: Entry) -> list[list[str]]:
    report = entry.report
    reads = {read.cores: read.gigabytes_per_second for read in report.reads}
    step = report.step_products
    by_place: dict[tuple[str, str, int], dict[tuple[str, int], Spread]] = {}
    for one in report.products:
        by_place.setdefault((one.instruction_set, one.cores, one.threads), {})[one.product, one.rows] = one.rate
    return [
        [
            entry.device,
            name,
            place(cores, threads),
            *(_figure(rates.get((product, 1))) for product in PRODUCTS[:2]),
            *(_figure(rates.get((product, 256))) for product in PRODUCTS),
            _figure(reads.get(cores)),
            _figure(step.seconds) if (cores, name) == ("all", step.instruction_set) else "-",
        ]
        for (name, cores, threads), rates in by_place.items()
    ]


def _bundle(entry: Entry) -> list[list[str]]:
    bundle = entry.report.bundle
    if bundle is None:
        return []
    answers = _figure(bundle.answers.tokens_per_second if bundle.answers else None)
    return [
        [
            entry.device,
            bundle.model,
            plan.method,
            str(plan.sequence_length),
            "-" if plan.budget_bytes is None else f"{plan.budget_bytes / 1e6:g}",
            f"{plan.peak_bytes / 1e6:.1f}",
            _figure(plan.seconds),
            answers,
        ]
        for plan in bundle.plans
    ]


def _figure(spread: Spread | None) -> str:
    return "-" if spread is None else f"{short(spread.median)} ({short(spread.least)}-{short(spread.most)})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "None was sent in yet."
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *cells])


def entries() -> list[Entry]:
    """The entries of the folder, by the names of their files."""
    return [read_entry(path) for path in sorted(FOLDER.glob("*.json"))]


def with_tables(page: str, texts: Mapping[str, str]) -> str:
    """The page with each text between the markers of its name."""
    for name, text in texts.items():
        begin, end = f"<!-- figures:{name} -->", f"<!-- /figures:{name} -->"
        before, rest = page.split(begin, 1)
        page = f"{before}{begin}\n{text}\n{end}{rest.split(end, 1)[1]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables(entries())), encoding="utf-8")
