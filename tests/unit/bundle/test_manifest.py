# SPDX-License-Identifier: Apache-2.0
"""The manifest: every field required and named when it is gone, versions kept apart, references that lead somewhere."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.manifest_document import manifest_bytes, read_manifest
from bespoke.bundle.manifest_schema import manifest_schema
from bespoke.errors import BundleError, BundleVersionError
from tests.support.bundles import drop_fields_of_1_5, drop_fields_of_1_7, drop_fields_of_1_8
from tests.unit.bundle.example import write_example
from tests.unit.bundle.manifests import (
    as_bytes,
    edits,
    instance,
    later_fields,
    of_1_0,
    of_1_1,
    of_1_2,
    of_1_3,
    schema_fields,
    without_methods,
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_example(tmp_path_factory.mktemp("manifest") / "a.bundle")
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return loaded


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


@pytest.mark.parametrize("version", [{"major": 2, "minor": 0}, {"major": 0, "minor": 9}, {"major": 1, "minor": 9}])
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


def test_a_document_of_1_6_has_no_answers_of_its_base_model(document: dict[str, Any]) -> None:
    old = copy.deepcopy(document)
    old["format_version"]["minor"] = 6
    drop_fields_of_1_7(old)
    assert read_manifest(as_bytes(old)).data.behaviour is None
    assert read_manifest(as_bytes(document)).data.behaviour == "data/behaviour.safetensors"
    with pytest.raises(BundleError, match=r"data\.behaviour"):
        read_manifest(as_bytes({**old, "format_version": {"major": 1, "minor": 7}}))


def test_a_document_of_1_7_has_no_federation(document: dict[str, Any]) -> None:
    old = copy.deepcopy(document)
    old["format_version"]["minor"] = 7
    drop_fields_of_1_8(old)
    assert read_manifest(as_bytes(old)).federation is None
    federation = read_manifest(as_bytes(document)).federation
    assert federation is not None
    assert federation.task == "words"
    with pytest.raises(BundleError, match="federation"):
        read_manifest(as_bytes({**old, "format_version": {"major": 1, "minor": 8}}))


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
