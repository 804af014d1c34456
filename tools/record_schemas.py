# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of the C API's JSON: reports, records and an error's references come out, examples go in.

Other languages generate their types from them. What comes out grows: readers ignore unknown fields and accept unknown words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from bespoke.core.reports import fields_of_the_core
from bespoke.data.shapes import FIELDS, OPTIONAL_FIELDS
from bespoke.data.turns import ROLES
from bespoke.rules.bench_report import (
    AnswerRate,
    BenchReport,
    BundleBench,
    CoreClass,
    PlanSteps,
    ProductRate,
    ReadRate,
    Spread,
    StepProducts,
    SystemName,
)
from bespoke.rules.records import (
    AddedExample,
    AnswerPiece,
    Classification,
    Description,
    ExampleInfo,
    FederationReport,
    FederationRequest,
    FederationStatus,
    Forgotten,
    PlannedTraining,
    Run,
    Score,
    Version,
)
from bespoke.rules.report import STAGES, Evaluation, JudgedStep, MemoryReport, TrainReport
from bespoke.rules.verification import PassedCheck, VerifyReport
from bespoke.verbs import VERB_OF

RECORDS = (
    AddedExample,
    AnswerPiece,
    Classification,
    Description,
    ExampleInfo,
    FederationReport,
    FederationRequest,
    FederationStatus,
    Forgotten,
    PlannedTraining,
    Run,
    Score,
    Version,
)
REPORTS = (TrainReport, Evaluation, VerifyReport)
PARTS = (MemoryReport, JudgedStep, PassedCheck)  # of reports
BENCH_PARTS = (AnswerRate, BundleBench, CoreClass, PlanSteps, ProductRate, ReadRate, Spread, StepProducts, SystemName)
# null if the number is not finite: JSON cannot write it
NOT_FINITE = ("losses", "loss", "perplexity", "accuracy", "log_probability")
GROWS = "Later versions may add fields: ignore those that you do not know."
WORDS_GROW = "Later versions may add words: accept those that are not listed."
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def record_schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema."""
    outputs = {f"{file_name(kind)}.schema.json": schema_of(kind) for kind in (*RECORDS, *REPORTS)}
    return {
        **outputs,
        "error_references.schema.json": references_schema(),
        "example.schema.json": example_schema(),
    }


def bench_schema() -> dict[str, Any]:
    """Schema of the report of `bespoke bench`. No binding has it: it passes through a file, not through the C API."""
    return schema_of(BenchReport)


def file_name(kind: type) -> str:
    """The file name of a class: train_report for TrainReport."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("_")


def schema_of(kind: type) -> dict[str, Any]:
    """Schema of a report or record as the core writes it, with every field filled."""
    schema = TypeAdapter(kind).json_schema(mode="serialization")
    nested = {part.__name__: part for part in (*PARTS, *BENCH_PARTS)}
    for part, owner in ((schema, kind), *((part, nested[name]) for name, part in schema.get("$defs", {}).items())):
        written = fields_of_the_core(owner)
        properties = {name: described(name, schema) for name, schema in part["properties"].items() if name in written}
        part.update({"$comment": GROWS, "properties": properties, "required": list(written)})
    if kind is TrainReport:
        properties = schema["properties"]
        properties["peak_bytes"] = {"type": "integer"}
        properties["seconds_by_stage"] = numbers_by(STAGES, {"type": "number"})
        columns = {"type": "array", "items": {"type": "integer"}}
        properties["memory_columns"] = numbers_by(("anonymous", "shmem", "swap", "file"), columns)
    return {"$schema": DRAFT, **schema}


def described(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("title", "default")}
    if name == "losses":
        return {**kept, "items": {"type": ["number", "null"]}}
    if name in NOT_FINITE:
        return {**kept, "type": ["number", "null"]}
    return with_open_words(kept)


def with_open_words(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field where its list of words, if it has one, grows: any other text is valid too."""
    options = schema.get("anyOf", [schema])
    words = [option["enum"] for option in options if "enum" in option]
    if not words:
        return schema
    return open_words(words[0], nullable={"type": "null"} in options)


def open_words(words: Sequence[str], nullable: bool = False) -> dict[str, Any]:
    listed: dict[str, Any] = {"type": "string", "enum": list(words)}
    return {"$comment": WORDS_GROW, "anyOf": [listed, {"type": "string"}, *([{"type": "null"}] if nullable else [])]}


def numbers_by(names: tuple[str, ...], kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, kind), "required": list(names)}


def references_schema() -> dict[str, Any]:
    """Schema of an error's `references`: the parts that name verbs and settings, as texts and references in their order."""
    text = {"type": "string"}
    verbs = sorted(key for key in VERB_OF if key.isidentifier() and not key.startswith("_"))
    call = {
        "type": "object",
        "title": "call",
        "required": ["do"],
        "properties": {"do": open_words(verbs), "arguments": {"type": "array", "items": text}},
    }
    setting = {
        "type": "object",
        "title": "setting",
        "required": ["setting"],
        "properties": {"setting": text, "value": {"type": ["string", "number", "boolean"]}},
    }
    part = {"type": "array", "items": {"anyOf": [text, call, setting]}, "minItems": 1}
    return {
        "$schema": DRAFT,
        "$comment": GROWS,
        "title": "ErrorReferences",
        "description": "The parts of an error that name verbs and settings. bindings/schema/remedies.json has their names.",
        "type": "object",
        "required": [],
        "properties": dict.fromkeys(("subject", "got", "expected", "next_step"), part),
    }


def example_schema() -> dict[str, Any]:
    """Schema of an example: an object for each shape. Other fields are kept and not trained on."""
    text = {"type": "string"}
    message = {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": list(ROLES)}, "content": text, "weight": {"enum": [0, 1]}},
    }
    whole = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    kinds = {
        "messages": {"type": "array", "items": message, "minItems": 1},
        "prompt": text,
        "completion": text,
        "chosen": text,
        "rejected": text,
        "text": text,
        "as": {"enum": ["text"]},
        "end": {"enum": ["none"]},
        "tokens": {"type": "array", "items": whole, "minItems": 1},
        "mask": {"type": "array", "items": {"enum": [0, 1]}},
    }
    shapes = [
        {
            "type": "object",
            "title": shape,
            "required": list(fields),
            "properties": {name: kinds[name] for name in (*fields, *OPTIONAL_FIELDS[shape])},
        }
        for shape, fields in FIELDS.items()
    ]
    correction = {"prompt": kinds["messages"], "chosen": text, "rejected": text}  # a preference, behind a whole chat
    place = next(number for number, shape in enumerate(shapes) if shape["title"] == "preference")
    shapes.insert(
        place + 1,
        {"type": "object", "title": "correction", "required": list(correction), "properties": correction},
    )
    return {"$schema": DRAFT, "title": "Example", "description": "What the user gives to learn from.", "oneOf": shapes}
