# SPDX-License-Identifier: Apache-2.0
"""What other languages share with the SDK is written from its types, and is what they say now: `make schema` writes it."""

from __future__ import annotations

import importlib
from dataclasses import make_dataclass
from types import ModuleType
from typing import Literal

import pytest
from pydantic import create_model

from bespoke.rules.report import Evaluation, MemoryReport, TrainReport
from tests.conftest import REPOSITORY


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(REPOSITORY / "tools")
    return importlib.import_module("write_schemas")


@pytest.fixture
def tables(tool: ModuleType) -> ModuleType:
    return importlib.import_module("cpp_tables")


def written(tool: ModuleType) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in tool.FOLDER.iterdir()}


def test_schemas_are_what_the_models_generate(tool: ModuleType) -> None:
    """`make schema` writes them; run it after a change."""
    assert written(tool) == tool.schemas()
    assert {name: (tool.KOTLIN / name).read_text(encoding="utf-8") for name in tool.kotlin()} == tool.kotlin()
    assert {name: (tool.SWIFT / name).read_text(encoding="utf-8") for name in tool.swift()} == tool.swift()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (int, "int64_t"),
        (float, "double"),
        (bool, "bool"),
        (str, "std::string"),
        (float | None, "std::optional<double>"),
        (tuple[int, ...], "std::vector<int64_t>"),
        (Literal["constant", "linear", "cosine"], "Schedule"),
    ],
)
def test_a_new_field_of_training_is_one_of_the_core_too(
    tool: ModuleType, tables: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: object, said: str
) -> None:
    grown = create_model("Training", __base__=tables.Training, patience=(kind, ...))
    monkeypatch.setattr(tables, "Training", grown)
    assert tool.schemas()["training.inc"] == written(tool)["training.inc"] + f"BESPOKE_FIELD(patience, {said})\n"


@pytest.mark.parametrize("kind", [dict[str, int], int | str, tuple[int, int], Literal["constant", "step"]])
def test_a_field_of_a_type_that_the_core_has_no_word_for_is_refused(
    tool: ModuleType, tables: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: object
) -> None:
    monkeypatch.setattr(tables, "Training", create_model("Training", __base__=tables.Training, patience=(kind, ...)))
    with pytest.raises(TypeError, match="no type of the core"):
        tool.schemas()


@pytest.mark.parametrize(
    ("report", "file"),
    [(TrainReport, "train_report.inc"), (MemoryReport, "memory_report.inc"), (Evaluation, "evaluation.inc")],
)
def test_a_new_field_of_a_report_is_one_that_the_core_fills(
    tool: ModuleType, tables: ModuleType, monkeypatch: pytest.MonkeyPatch, report: type, file: str
) -> None:
    grown = make_dataclass(report.__name__, [("extra", int, 0)], bases=(report,), frozen=True)
    monkeypatch.setattr(tables, report.__name__, grown)
    assert tool.schemas()[file] == written(tool)[file] + "BESPOKE_FIELD(extra)\n"
