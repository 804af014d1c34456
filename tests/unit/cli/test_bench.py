# SPDX-License-Identifier: Apache-2.0
"""`bespoke bench`: its report of a device and of a bundle, the tables that it prints, and what it refuses before it measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bespoke import bench
from bespoke.errors import BundleError
from tests.conftest import REPOSITORY
from tests.support.json_schema import violations
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import METHODS, tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]

SCHEMA = REPOSITORY / "bindings" / "schema" / "bench_report.schema.json"


@pytest.mark.xdist_group("tiny")
def test_a_bundle_is_measured_as_well_and_the_report_goes_to_a_file(tiny_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "device.json"
    answer = bespoke("bench", tiny_bundle, "--quick", "--json", file).ok()
    report = json.loads(file.read_text())
    assert violations(report, json.loads(SCHEMA.read_text())) == []
    assert [plan["method"] for plan in report["bundle"]["plans"]] == list(METHODS)
    assert all(plan["seconds"]["least"] > 0 and plan["peak_bytes"] > 0 for plan in report["bundle"]["plans"])
    assert report["bundle"]["answers"]["tokens_per_second"]["median"] > 0
    assert str(tmp_path) not in file.read_text()
    for words in ("instruction set", "reads on", "products of a step", "seconds a step", "answers: ", *METHODS):
        assert words in answer.out
    assert list(tmp_path.iterdir()) == [file]


def test_a_wrong_bundle_is_refused_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Any] = []
    monkeypatch.setattr(bench, "run", measured.append)
    (tmp_path / "manifest.json").write_text("{}")
    for path in (tmp_path, tmp_path / "none.bundle"):
        answer = bespoke("bench", path, "--format", "json")
        error = answer.json["error"]
        assert (answer.code, error["kind"]) == (BundleError.exit_code, "BundleError")
        assert str(path) in error["subject"]
        assert all(error[part] for part in ("got", "expected", "next_step"))
    assert measured == []


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Any] = []
    monkeypatch.setattr(bench, "run", measured.append)
    answer = bespoke("bench", "--json", tmp_path / "none" / "device.json", "--format", "json")
    assert answer.json["error"]["got"] == "a folder that is not there"
    assert measured == []
