# SPDX-License-Identifier: Apache-2.0
"""`bespoke bench`, which measures this device and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bespoke.cli.output import PATH, Output, Trust, format_option, print_json, progress, table, trust_options
from bespoke.format.result_file import check_place, write
from bespoke.rules.report import megabytes

Fields = Mapping[str, Any]


@click.command(short_help="Measure what this device can do.")
@click.argument("bundle", type=PATH, required=False)
@click.option("--json", "file", type=PATH, metavar="FILE", help="Write the report there, as one JSON object.")
@click.option("--quick", is_flag=True, help="Try that everything works, in seconds. Its figures do not count.")
@trust_options
@format_option
@click.pass_obj
def bench(output: Output, bundle: Path | None, file: Path | None, quick: bool, trust: Trust) -> None:
    """Measure this device: kernels on each instruction set, read bandwidth, the products of a training step.

    With BUNDLE, also seconds a step and peak memory for each of its plans, and tokens a second of its answers. Nothing else should
    run meanwhile. The report names no user and no machine: docs/reference/devices.md says how to send it in.

    \b
    bespoke bench chat.bundle --json device.json
    """
    from bespoke.bench import measure

    if file is not None:
        check_place("--json", file)
    with progress() as tell:
        report = measure(bundle, quick=quick, progress=lambda what: tell(f"measuring {what}", 0, 0), **trust)
    if file is not None:
        write("--json", file, (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode())
    if output.json:
        print_json(report)
    else:
        click.echo("\n\n".join(_tables(report)))


def _tables(report: Fields) -> Iterator[str]:
    yield _device(report)
    yield table(
        ("instruction set", "on", "product", "1 row, Gweights/s", "8 rows", "64", "256, GFLOP/s"), _products(report)
    )
    step = report["step_products"]
    reads = [(place(read["cores"], read["threads"]), _figure(read["gigabytes_per_second"])) for read in report["reads"]]
    yield table(("reads on", "GB/s"), reads)
    yield (
        f"products of a step of {step['blocks']} blocks and {step['rows']} tokens: {_figure(step['seconds'])} s "
        f"({step['instruction_set']}, {step['threads']} threads)"
    )
    if (bundle := report["bundle"]) is not None:
        yield from _bundle(bundle)
    if report["quick"]:
        yield "A quick run: it shows that everything works, and its figures do not count."


def _device(report: Fields) -> str:
    system = report["system"]
    load = report["load_average"]
    masked = f"; hidden: {report['masked_features']}" if report["masked_features"] else ""
    return "\n".join(
        (
            f"processor   {report['processor'] or 'unknown'} ({', '.join(report['features']) or 'baseline'}{masked})",
            f"cores       {'; '.join(map(_cores, report['cores']))}",
            f"memory      {megabytes(report['memory_bytes'])}",
            f"system      {system['name']} {system['version']}, {system['architecture']}",
            f"core        {report['core_version']}; load before {'unknown' if load is None else f'{load:.2f}'}",
        )
    )


def _cores(cores: Fields) -> str:
    more = (
        cores["part"],
        cores["max_mhz"] and f"{cores['max_mhz']} MHz",
        cores["capacity"] and f"capacity {cores['capacity']}",
    )
    said = ", ".join(filter(None, more))
    return f"{cores['count']}" + (f" ({cores['name']})" if cores["name"] else "") + (f": {said}" if said else "")


def place(cores: str, threads: int) -> str:
    """Returns where it was measured. `cores`: the name of a class, "all", or empty for one core of any."""
    return f"all, {threads} threads" if cores == "all" else f"one of {cores}" if cores else "one core"


def _products(report: Fields) -> list[Sequence[object]]:
    rates: dict[tuple[str, str, str], list[str]] = {}
    for one in report["products"]:  # rows ascend
        rates.setdefault((one["instruction_set"], place(one["cores"], one["threads"]), one["product"]), []).append(
            _figure(one["rate"])
        )
    return [(*names, *row) for names, row in rates.items()]


def _bundle(bundle: Fields) -> Iterator[str]:
    plans = [
        (
            plan["method"],
            plan["sequence_length"],
            plan["batch_size"],
            "none" if plan["budget_bytes"] is None else megabytes(plan["budget_bytes"]),
            megabytes(plan["peak_bytes"]),
            _figure(plan["seconds"]),
        )
        for plan in bundle["plans"]
    ]
    columns = ("method", "length", "batch", "budget", "peak", "seconds a step")
    yield f"{bundle['model']}, engine {bundle['engine']}\n" + table(columns, plans)
    if (answers := bundle["answers"]) is not None:
        yield (
            f"answers: {_figure(answers['tokens_per_second'])} tokens a second, after {_figure(answers['first_token_seconds'])} s "
            f"for the first of a prompt of {answers['prompt_tokens']} tokens"
        )


def _figure(spread: Fields) -> str:
    """Returns the median, with the range where there were several turns."""
    median = short(spread["median"])
    return median if spread["turns"] == 1 else f"{median} ({short(spread['least'])} to {short(spread['most'])})"


def short(value: float) -> str:
    """Returns three digits, or all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
