# SPDX-License-Identifier: Apache-2.0
"""The manifest's example with fields edited, earlier versions of it, and names of files that lead outside."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from tests.support.bundles import drop_fields_of_1_4


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def schema_fields(schema: dict[str, Any]) -> dict[str, list[str]]:
    """Schema path -> path of one instance of it in the example; walked through JSON Schema, not through our models."""
    found: dict[str, list[str]] = {}

    def resolve(part: dict[str, Any]) -> dict[str, Any]:
        return schema["$defs"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part

    def walk(part: dict[str, Any], kind: str, path: list[str]) -> None:
        part = resolve(part)
        for choice in part.get("anyOf", []):
            walk(choice, kind, path)
        for name, inner in part.get("properties", {}).items():
            found[f"{kind}{name}"] = [*path, name]
            walk(inner, f"{kind}{name}.", [*path, name])
        if isinstance(part.get("items"), dict):
            walk(part["items"], kind, [*path, "[]"])
        if isinstance(part.get("additionalProperties"), dict):
            walk(part["additionalProperties"], kind, [*path, "{}"])

    walk(schema, "", [])
    return found


def instance(document: Any, path: list[str]) -> tuple[Any, str]:
    """The object that holds the last component of `path`, and that path with positions filled in."""
    shown = []
    for part in path[:-1]:
        key = 0 if part == "[]" else next(iter(document)) if part == "{}" else part
        shown.append(str(key))
        document = document[key]
    return document, ".".join([*shown, path[-1]])


def of_1_3(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as the format has it of before features, and before adapters whose B alone is trained."""
    old = copy.deepcopy(document)
    old["format_version"]["minor"] = 3
    del old["weights"][-1]
    drop_fields_of_1_4(old)
    return old


def of_1_2(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as the format of before smaller plans has it."""
    old = of_1_3(document)
    old["format_version"]["minor"] = 2
    del old["smaller_generation"], old["files"]["plans/generation-0.5mb.json"]
    del old["methods"][0]["smaller_plans"], old["files"]["plans/mesp_16-0.5mb.json"]
    return old


def of_1_1(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as the format of before the plan for answers has it."""
    old = of_1_2(document)
    old["format_version"]["minor"] = 1
    del old["generation"], old["files"]["plans/generation.json"]
    return old


def without_methods(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle, which answers and does not train."""
    doctored = {**copy.deepcopy(document), "methods": [], "federation": None}
    del doctored["files"]["plans/mesp_16.json"], doctored["files"]["plans/mesp_16-0.5mb.json"]
    return doctored


def of_1_0(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as the first format has it."""
    old = of_1_1(document)
    old["format_version"]["minor"] = 0
    del old["text"]["tokenizer_bin"], old["files"]["text/tokenizer.bin"]
    for target in old["targets"]:
        for artifact in target["artifacts"]:
            for baked in artifact.pop("baked"):
                artifact["operands"].append(baked["operand"])
        *_, kept = target["artifacts"]
        target["artifacts"] = [kept]
    del old["files"]["graphs/cuda/scale-block_00.json"]
    return old


def later_fields(old: dict[str, Any]) -> list[tuple[str, dict[str, Any], Any, str]]:
    """(path, the object that it stands in, a value, version that it came with) of the fields that came after 1.0."""
    return [
        ("text.tokenizer_bin", old["text"], None, "1.1"),
        ("targets.0.artifacts.0.baked", old["targets"][0]["artifacts"][0], [], "1.1"),
        ("generation", old, None, "1.2"),
        ("methods.0.smaller_plans", old["methods"][0], [], "1.3"),
        ("smaller_generation", old, [], "1.3"),
        ("targets.0.artifacts.0.numbers", old["targets"][0]["artifacts"][0], {}, "1.4"),
        ("targets.0.artifacts.0.delegates", old["targets"][0]["artifacts"][0], [], "1.4"),
        ("targets.0.features", old["targets"][0], [], "1.4"),
        ("data.behaviour", old["data"], None, "1.7"),
        ("federation", old, None, "1.8"),
        ("methods.0.training.useful_gain", old["methods"][0]["training"], 0.002, "1.5"),
        ("methods.0.training.write_mb_per_run", old["methods"][0]["training"], 300.0, "1.5"),
    ]


def edits(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(what the error must say, doctored document)."""

    def edit(*path: Any, value: Any) -> dict[str, Any]:
        doctored = copy.deepcopy(document)
        holder: Any = doctored
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value
        return doctored

    yield "federation.method", edit("federation", "method", value="zgr")
    yield "federation.budget", edit("federation", "noise", value=0.0)
    yield "federation.budget", edit("federation", "budget", value=None)
    yield "federation.server_key", edit("federation", "server_key", value="AB" * 32)
    yield "federation.clip", edit("federation", "clip", value=0.0)
    record = document["files"]["licences/LICENSE.txt"]
    files = document["files"]
    yield "format", edit("format", value="zip")
    yield "an object", [document]
    yield "format_version.minor", edit("format_version", value={"major": 1, "minor": True})
    yield "format_version.major", edit("format_version", value=[1, 0])
    yield "context_length", edit("context_length", value=0)
    yield "context_length", edit("context_length", value="64")
    yield "context_length", edit("context_length", value=2**60)
    yield "lora.alpha", edit("lora", "alpha", value="16")
    yield "lora.rank", edit("lora", "rank", value=1.0)
    yield "train_on", edit("text", "train_on", value="everyone")
    yield "model.name", edit("model", "name", value="a\u001b[31m")
    yield "model.base_sha256", edit("model", "base_sha256", value="A" * 64)
    yield "methods", edit("methods", value="mesp")
    yield "no record of 'plans/answers.json'", edit("generation", "file", value="plans/answers.json")
    yield "generation.sequence_length", edit("generation", "sequence_length", value=0)
    (smaller,) = document["methods"][0]["smaller_plans"]
    yield "1000000 bytes", edit("methods", 0, "smaller_plans", value=[{**smaller, "memory_bytes": 1_000_000}])
    yield "500000 bytes", edit("methods", 0, "smaller_plans", value=[smaller, smaller])
    yield "500000 bytes", edit("budget", "memory_bytes", value=None)
    yield "a plan for length 32", edit("methods", 0, "smaller_plans", 0, "plans", 0, "sequence_length", value=32)
    yield "16 twice", edit("methods", 0, "smaller_plans", 0, "plans", value=smaller["plans"] * 2)
    yield "1500000 bytes", edit("smaller_generation", 0, "memory_bytes", value=1_500_000)
    yield "no record of 'plans/less.json'", edit("smaller_generation", 0, "plan", "file", value="plans/less.json")
    yield "methods.0.options", edit("methods", 0, "options", "deep", value={"a": 1})
    yield "methods.0.scalars", edit("methods", 0, "scalars", "epsilon", value=None)
    yield "methods.0.training", edit("methods", 0, "training", "seed", value=-1)
    yield "'mesp' twice", edit("methods", value=document["methods"] * 2)
    yield "'embedding' twice", edit("weights", 1, "group", value="embedding")
    yield "no group, as lora.train says", edit("lora", "train", value="both")
    yield "no group 'adapter'", edit("weights", 2, "group", value="head")
    yield (
        "a group of 'weights/block_00.safetensors' 'adapter'",
        edit("weights", 2, "file", value="weights/block_00.safetensors"),
    )
    yield "16 twice", edit("sequence_lengths", value=[16, 16])
    yield "a plan for length 16", edit("sequence_lengths", value=[32])
    yield "graphs", edit("graphs", 0, "key", value="0" * 64)
    yield "the operand 'y'", edit("targets", 0, "artifacts", 0, "operands", value=["x", "y"])
    artifact = document["targets"][0]["artifacts"][0]
    baked = artifact["baked"][0]
    for what, field, value in (
        ("the operand 'y'", "operand", "y"),
        ("the operand 'x' twice", "operand", "x"),
        ("the weight 'block_01.input_norm'", "weight", "block_01.input_norm"),
        ("the weight 'block_00'", "weight", "block_00"),
        ("the weight 'block_00.'", "weight", "block_00."),
        ("baked.rows", "rows", [8, 8]),
        ("baked.columns", "columns", [4, 2]),
        ("baked.0.rows", "rows", [1]),
        ("baked.0.columns", "columns", [1, 2, 3]),
        ("baked.0.column_start", "column_start", -1),
    ):
        yield what, edit("targets", 0, "artifacts", 0, "baked", value=[{**baked, field: value}])
    yield "the operand 'norm' twice", edit("targets", 0, "artifacts", 0, "baked", value=[baked, baked])
    yield "norm = block_0", edit("targets", 0, "artifacts", value=[artifact, artifact])
    whole = {**artifact, "operands": ["x", "norm", "start"], "baked": [], "numbers": {}}
    yield "twice", edit("targets", 0, "artifacts", 0, value=whole)
    for what, numbers in (
        ("the operand 'start' neither taken nor part of it", {}),
        ("the operand 'y'", {"start": 0, "y": 1}),
        ("the operand 'x' twice", {"start": 0, "x": 1}),
        ("numbers.start", {"start": 0.5}),
    ):
        yield what, edit("targets", 0, "artifacts", 0, "numbers", value=numbers)
    bytes_, value = document["targets"][0]["features"]
    for what, feature in (
        ("16 bytes for 32", {**bytes_, "shape": [2, 8]}),
        ("2 elements for 1", {**value, "shape": [2]}),
        ("0 elements for 1", {**value, "shape": [0, 7]}),
        ("int32 for int64", {**value, "view": "same"}),
        ("features.0.view", {**value, "view": "turned"}),
        ("features.0.dtype", {**value, "dtype": "float64"}),
        ("more than 9007199254740992 elements", {**value, "shape": [2**40, 2**40, 2**40]}),
    ):
        yield what, edit("targets", 0, "features", value=[feature])
    yield "int64 [] twice", edit("targets", 0, "features", value=[bytes_, value, value])
    yield "no record of 'text/other.bin'", edit("text", "tokenizer_bin", value="text/other.bin")
    yield "no record of 'plans/other.json'", edit("methods", 0, "plans", 0, "file", value="plans/other.json")
    yield "which no field names", edit("files", "plans/idle.json", value=record)
    yield "sha256", edit("files", "licences/LICENSE.txt", "sha256", value="0")
    yield "size", edit("files", "licences/LICENSE.txt", "size", value=2**50)
    for name in HOSTILE_NAMES:
        renamed = {**edit("licences", value=[name]), "files": {**files, name: record}}
        del renamed["files"]["licences/LICENSE.txt"]
        yield "name", renamed
    for first, second in (("a/B.txt", "A/b.txt"), ("x", "x/y")):
        both = {**files, first: record, second: record}
        del both["licences/LICENSE.txt"]
        yield "files", {**edit("licences", value=[first, second]), "files": both}


HOSTILE_NAMES = [
    "../secret",
    "/etc/passwd",
    "a/../../b",
    "a//b",
    "./a",
    "a/.",
    ".hidden",
    "a\\b",
    "C:a",
    "a\0b",
    "a\nb",
    "",
    "/",
    "a/",
    "manifest.json",
    "Manifest.sha256",
    "Signature",
    "é",
    "x" * 300,
    "a/" * 9 + "b",
]
