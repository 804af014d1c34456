# SPDX-License-Identifier: Apache-2.0
"""`bespoke-core bench`: what its report holds, and what it refuses. Its figures depend on the machine, so no test expects one."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.bench import measure
from bespoke.core.finding import find
from tests.conftest import REPOSITORY
from tests.native.core_lab import tiny_core_bundle
from tests.support.json_schema import violations
from tests.support.statuses import STATUS

__all__ = ["tiny_core_bundle"]

SECONDS = 120  # a quick run takes a few; other work may share the cores


def schema() -> dict[str, Any]:
    text = (REPOSITORY / "bindings" / "schema" / "bench_report.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def run(*arguments: str, given: str = "", masked: str = "") -> tuple[Any, int]:
    """What the tool prints, and its exit status."""
    environment = {**os.environ, "BESPOKE_MASKED_FEATURES": masked}
    done = subprocess.run(
        [find().required(), *arguments], input=given, capture_output=True, text=True, timeout=SECONDS, env=environment
    )
    return json.loads(done.stdout), done.returncode


@pytest.fixture(scope="module")
def report() -> Any:
    found, status = run("bench", "--quick")
    assert status == 0
    return found


def numbers(value: Any, place: str = "$") -> Iterator[tuple[str, float]]:
    """Every number of the report, with its place."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield place, value
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from numbers(part, f"{place}.{name}")


def test_the_report_is_what_the_schema_says(report: Any) -> None:
    assert violations(report, schema()) == []
    without_median = [{**report["reads"][0], "gigabytes_per_second": {}}]
    assert any("median" in problem for problem in violations({**report, "reads": without_median}, schema()))


def test_every_figure_is_positive_and_finite(report: Any) -> None:
    found = dict(numbers(report))
    load = found.pop("$.load_average")
    assert math.isfinite(load)
    assert load >= 0
    assert len(found) > 50
    assert {place: number for place, number in found.items() if not (math.isfinite(number) and number > 0)} == {}


def test_medians_lie_between_the_extremes(report: Any) -> None:
    spreads = [one["rate"] for one in report["products"]]
    spreads += [one["gigabytes_per_second"] for one in report["reads"]] + [report["step_products"]["seconds"]]
    assert all(one["least"] <= one["median"] <= one["most"] and one["turns"] >= 1 for one in spreads)


def test_each_instruction_set_is_measured_on_each_class_of_cores_and_on_all(report: Any) -> None:
    places = {(one["cores"], one["threads"]) for one in report["products"]}
    assert {cores for cores, _ in places} == {one["name"] for one in report["cores"]} | {"all"}
    assert sum(one["count"] for one in report["cores"]) == len(os.sched_getaffinity(0))
    sets = {one["instruction_set"] for one in report["products"]}
    assert report["step_products"]["instruction_set"] in sets
    assert len(report["products"]) == len(places) * len(sets) * 3 * 4


def test_hidden_features_are_not_measured(report: Any) -> None:
    masked = ",".join(report["features"])
    if not masked:
        pytest.skip("this processor has no feature to hide")
    found, status = run("bench", "--quick", masked=masked)
    assert (status, found["features"], found["masked_features"]) == (0, [], masked)
    assert {one["instruction_set"] for one in found["products"]} <= {"baseline", "NEON"}
    assert not {one["instruction_set"] for one in found["products"]} & {"AMX", "AVX-512", "NEON i8mm"}


def test_a_request_gets_the_same_report_as_an_event() -> None:
    event, status = run(given='{"verb": "bench", "quick": true}\n')
    assert (status, event["event"]) == (0, "report")
    assert violations(event["report"], schema()) == []


@pytest.mark.parametrize("arguments", [["benhc"], ["bench", "--fast"], ["bench", "--quick", "x"]])
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    event, status = run(*arguments)
    assert status == STATUS["ConfigError"]
    assert (event["event"], event["subject"], event["got"]) == ("error", "command line", f"'{' '.join(arguments)}'")
    assert "bench --quick" in event["expected"]


def test_a_request_whose_field_has_another_type_is_refused() -> None:
    event, status = run(given='{"verb": "bench", "quick": "yes"}\n')
    assert (event["event"], event["kind"], status) == ("error", "ConfigError", STATUS["ConfigError"])


def test_the_steps_of_a_bundle_are_those_of_the_core(tiny_core_bundle: Path) -> None:
    report = measure(tiny_core_bundle, quick=True)
    assert violations(report, schema()) == []
    assert report["bundle"]["engine"] == "executorch"
    zeros = [place for place, number in numbers(report["bundle"]) if not (math.isfinite(number) and number > 0)]
    assert zeros == []
