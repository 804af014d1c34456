# SPDX-License-Identifier: Apache-2.0
"""The manifest: every field required and named when it is gone, versions kept apart, references that lead somewhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.manifest_document import manifest_bytes, manifest_schema, read_manifest
from bespoke.errors import BundleError, BundleVersionError
from tests.support.bundles import drop_fields_of_1_4, drop_fields_of_1_5
from tests.unit.bundle.example import write_example


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_example(tmp_path_factory.mktemp("manifest") / "a.bundle")
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return loaded


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


def test_the_example_is_whole(document: dict[str, Any]) -> None:
    manifest = read_manifest(as_bytes(document))
    assert json.loads(manifest_bytes(manifest)) == document
    assert manifest_bytes(read_manifest(manifest_bytes(manifest))) == manifest_bytes(manifest)


def test_each_field_removed_is_refused_and_named(document: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    fields = schema_fields(manifest_schema())
    for kind, path in fields.items():
        doctored = copy.deepcopy(document)
        holder, shown = instance(doctored, path)
        assert path[-1] in holder, f"the example lacks {kind}"
        del holder[path[-1]]
        with pytest.raises(BundleError) as caught:
            read_manifest(as_bytes(doctored))
        assert caught.value.subject == f"manifest.json: {shown}", kind
        assert caught.value.got == "nothing", kind
    with capsys.disabled():
        print(f"\nmanifest fields removed one by one: {len(fields)} of {len(fields)} in the schema refused and named")


def test_the_schema_has_no_defaults_and_describes_every_record_of_the_bundle() -> None:
    schema = manifest_schema()
    assert '"default"' not in json.dumps(schema).replace('"const": "default"', "").replace('"enum": ["default"', "")
    for name, part in [("Manifest", schema), *schema["$defs"].items()]:
        assert part["required"] == sorted(part["properties"])
        assert part["additionalProperties"] is False
        for field, inner in part["properties"].items():
            if name not in ("Estimate", "ModelConfig", "RopeConfig", "Training"):  # described where they are defined
                assert inner.get("description"), f"{name}.{field}"


def test_an_unknown_field_is_refused_at_every_level(document: dict[str, Any]) -> None:
    levels = {tuple(path[:-1]): path for path in schema_fields(manifest_schema()).values()}
    for path in levels.values():
        doctored = copy.deepcopy(document)
        holder, _ = instance(doctored, path)
        holder["novelty"] = 1
        with pytest.raises(BundleError, match="novelty"):
            read_manifest(as_bytes(doctored))


@pytest.mark.parametrize("version", [{"major": 2, "minor": 0}, {"major": 0, "minor": 9}, {"major": 1, "minor": 7}])
def test_other_versions_are_refused_as_such(document: dict[str, Any], version: dict[str, int]) -> None:
    with pytest.raises(BundleVersionError) as caught:
        read_manifest(as_bytes({**document, "format_version": version, "unknown": 1}))
    assert caught.value.got == f"{version['major']}.{version['minor']}"


def of_1_4(document: dict[str, Any]) -> dict[str, Any]:
    """The same bundle as the format of before a least useful gain has it."""
    old = copy.deepcopy(document)
    old["format_version"]["minor"] = 4
    drop_fields_of_1_5(old)
    return old


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
    doctored = {**copy.deepcopy(document), "methods": []}
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


def test_a_document_of_1_0_is_read_and_has_nothing_of_later_ones(document: dict[str, Any]) -> None:
    old = of_1_0(document)
    manifest = read_manifest(as_bytes(old))
    assert (manifest.text.tokenizer_bin, manifest.targets[0].artifacts[0].baked, manifest.generation) == (
        None,
        (),
        None,
    )
    for path, holder, value, since in later_fields(old):
        holder[path.rsplit(".", 1)[-1]] = value
        with pytest.raises(BundleError) as caught:
            read_manifest(as_bytes(old))
        assert (caught.value.subject, caught.value.got) == (f"manifest.json: {path}", "a value")
        assert caught.value.expected == f"nothing: format 1.0 does not have it (it came with {since})"
        del holder[path.rsplit(".", 1)[-1]]


def test_a_document_of_1_1_is_read_without_a_plan_for_answers(document: dict[str, Any]) -> None:
    manifest = read_manifest(as_bytes(of_1_1(document)))
    assert manifest.generation is None
    assert [plan.method for plan in manifest.plans] == ["mesp"]
    with pytest.raises(BundleError, match="generation"):
        read_manifest(as_bytes({**of_1_1(document), "format_version": {"major": 1, "minor": 2}}))


def test_a_document_of_1_2_is_read_without_smaller_plans(document: dict[str, Any]) -> None:
    manifest = read_manifest(as_bytes(of_1_2(document)))
    assert (manifest.methods[0].smaller_plans, manifest.smaller_generation) == ((), ())
    with pytest.raises(BundleError, match="smaller"):
        read_manifest(as_bytes({**of_1_2(document), "format_version": {"major": 1, "minor": 3}}))


def test_a_document_of_1_3_is_read_without_features_and_numbers_as_one_that_trains_both_factors(
    document: dict[str, Any],
) -> None:
    """An artifact of then may leave out a number without saying so."""
    manifest = read_manifest(as_bytes(of_1_3(document)))
    (target,) = manifest.targets
    assert (target.features, target.artifacts[0].numbers, manifest.lora.settings.train) == ((), {}, "both")
    with pytest.raises(BundleError, match=r"lora\.train"):
        read_manifest(as_bytes({**of_1_3(document), "format_version": {"major": 1, "minor": 4}}))


def test_a_document_of_1_4_takes_any_gain_and_limits_no_run(document: dict[str, Any]) -> None:
    (method,) = read_manifest(as_bytes(of_1_4(document))).methods
    assert (method.training.useful_gain, method.training.write_mb_per_run) == (0.0, None)
    (method,) = read_manifest(as_bytes(document)).methods
    assert (method.training.useful_gain, method.training.write_mb_per_run) == (0.002, 300.0)
    with pytest.raises(BundleError, match=r"training\.useful_gain"):
        read_manifest(as_bytes({**of_1_4(document), "format_version": {"major": 1, "minor": 5}}))


def test_plans_of_smaller_budgets_stand_behind_their_own(document: dict[str, Any]) -> None:
    manifest = read_manifest(as_bytes(document))
    found = [(plan.method, plan.memory_bytes, plan.record.file) for plan in manifest.plans]
    assert found == [
        ("mesp", 1_000_000, "plans/mesp_16.json"),
        ("mesp", 500_000, "plans/mesp_16-0.5mb.json"),
        ("generation", 1_000_000, "plans/generation.json"),
        ("generation", 500_000, "plans/generation-0.5mb.json"),
    ]


def test_a_document_may_have_no_method(document: dict[str, Any]) -> None:
    manifest = read_manifest(as_bytes(without_methods(document)))
    assert [plan.method for plan in manifest.plans] == ["generation", "generation"]


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
        ("methods.0.training.useful_gain", old["methods"][0]["training"], 0.002, "1.5"),
        ("methods.0.training.write_mb_per_run", old["methods"][0]["training"], 300.0, "1.5"),
    ]


class Newer(Manifest):
    """What 1.2 might be: one field more at the top (1.1), one more in a nested record (1.2)."""

    class _Lora(Manifest.model_fields["lora"].annotation):  # type: ignore[name-defined,misc]
        dropout: float | None = Field(default=None, description="came with 1.2")

    lora: _Lora
    note: str | None = Field(default=None, description="came with 1.1")


ADDED = {"note": 1, "lora.dropout": 2}


def newer(document: dict[str, Any], minor: int, **fields: Any) -> Manifest:
    lora = {**document["lora"], **{key: value for key, value in fields.items() if key == "dropout"}}
    top = {key: value for key, value in fields.items() if key != "dropout"}
    doctored = {**document, "format_version": {"major": 1, "minor": minor}, "lora": lora, **top}
    return read_manifest(as_bytes(doctored), kind=Newer, minor=2, added=ADDED)


def test_a_later_field_is_required_from_its_minor_on_and_forbidden_before(document: dict[str, Any]) -> None:
    newer(document, 0)
    newer(document, 1, note="x")
    assert newer(document, 2, note=None, dropout=0.5).format_version.minor == 2
    for minor, fields, field in [
        (0, {"note": "x"}, "note"),
        (0, {"note": None}, "note"),
        (0, {"dropout": None}, "lora.dropout"),
        (1, {}, "note"),
        (1, {"note": "x", "dropout": 0.1}, "lora.dropout"),
        (2, {"note": "x"}, "lora.dropout"),
        (2, {"dropout": 0.1}, "note"),
    ]:
        with pytest.raises(BundleError) as caught:
            newer(document, minor, **fields)
        assert caught.value.subject == f"manifest.json: {field}"
    with pytest.raises(BundleVersionError):
        newer(document, 3, note="x", dropout=0.1)


def edits(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(what the error must say, doctored document)."""

    def edit(*path: Any, value: Any) -> dict[str, Any]:
        doctored = copy.deepcopy(document)
        holder: Any = doctored
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value
        return doctored

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


def test_a_manifest_that_contradicts_itself_is_refused(document: dict[str, Any]) -> None:
    for what, doctored in edits(document):
        with pytest.raises(BundleError) as caught:
            read_manifest(as_bytes(doctored))
        assert what in str(caught.value), str(caught.value)


def test_several_faults_are_named_together(document: dict[str, Any]) -> None:
    doctored = copy.deepcopy(document)
    del doctored["golden"], doctored["lora"]["rank"]
    doctored["novelty"] = 1
    with pytest.raises(BundleError) as caught:
        read_manifest(as_bytes(doctored))
    for name in ("golden", "lora.rank", "novelty"):
        assert name in caught.value.subject


def test_the_manifest_names_no_folder_of_the_builder(tmp_path: Path) -> None:
    folder = write_example(tmp_path / "a.bundle")
    assert str(tmp_path) not in (folder / "manifest.json").read_text()
