# SPDX-License-Identifier: Apache-2.0
"""The core reads what Python reads, to the same records, and refuses what Python refuses, with the same words where it can."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.bundle.manifest_document import read_manifest
from bespoke.bundle.manifest_schema import manifest_schema
from bespoke.bundle.reader import read_bundle
from bespoke.config import Training, settings_from
from bespoke.errors import BespokeError, BundleError, BundleVersionError, ConfigError
from bespoke.format.tensors import tensors_from_buffer, write_arrays
from bespoke.reference.code import read_code
from tests.native.both_readers import reader, sample
from tests.native.format_lab import CoreReader, code_document, refused, without
from tests.support.bundles import stories_bundle
from tests.unit.bundle import manifests
from tests.unit.bundle.example import write_example
from tests.unit.bundle.manifests import as_bytes, edits, instance, later_fields, of_1_0, schema_fields
from tests.unit.format import tensor_files
from tests.unit.format.ambiguous import AMBIGUOUS
from tests.unit.plan.broken import Sample
from tests.unit.plan.drafts import document_of, replayable

__all__ = ["reader", "sample", "stories_bundle"]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A manifest in which every field is in use."""
    folder = write_example(tmp_path_factory.mktemp("manifest") / "a.bundle")
    loaded: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return loaded


# ---- the same records ----------------------------------------------------------------------------------------------------


def test_a_built_bundle_is_read_as_python_reads_it(reader: CoreReader, stories_bundle: Path) -> None:
    with read_bundle(stories_bundle) as bundle:
        manifest = bundle.manifest
        weights = [record.file for record in manifest.weights]
        plans = [plan.record.file for plan in manifest.plans]
        ours = reader.bundle(stories_bundle, files=["*"], tensors=weights, plans=plans)
        document = json.loads((stories_bundle / "manifest.json").read_bytes())
        document["weights"].sort(key=lambda record: record["group"])
        assert ours["manifest"] == without(document, ours["manifest"])
        assert ours["sha256"] == bundle.manifest_sha256
        assert ours["files"] == {name: record.sha256 for name, record in manifest.files.items()}
        for name in weights:
            same_tensors(ours["tensors"][name], bundle.mapped(name))
        for name in plans:
            assert ours["plans"][name] == code_document(
                read_code(bundle.read(name), name, manifest.graphs), bundle.read(name)
            )


def same_tensors(ours: dict[str, Any], theirs: dict[str, np.ndarray]) -> None:
    import hashlib

    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        assert (ours[name]["dtype"], ours[name]["shape"]) == (str(array.dtype), list(array.shape))
        assert ours[name]["sha256"] == hashlib.sha256(array.tobytes()).hexdigest()


def test_the_example_is_read(reader: CoreReader, document: dict[str, Any]) -> None:
    ours = reader.manifest(as_bytes(document))
    document = {**document, "weights": sorted(document["weights"], key=lambda record: record["group"])}
    assert ours == without(document, ours)


def test_every_kind_of_instruction_becomes_the_same_record(reader: CoreReader, sample: Sample) -> None:
    data = json.dumps(sample.document).encode()
    ours = reader.plan(data, sample.draft.graphs)
    assert ours == code_document(read_code(data, "plan", sample.draft.graphs), data)
    kinds = {instruction[0] for section in ours["sections"].values() for instruction in section}
    assert kinds == {"load", "call", "zero", "noise", "record", "store", "emit", "receive", "send", "free"}


def test_a_replay_is_the_same(reader: CoreReader) -> None:
    draft = replayable()
    data = json.dumps(document_of(draft.compile())).encode()
    ours = reader.plan(data, draft.graphs)
    assert ours == code_document(read_code(data, "plan", draft.graphs), data)
    assert [instruction[0] for instruction in ours["replay"]] == ["noise", "call", "store"]
    assert len(ours["recorded"]) == 1


def test_what_safetensors_writes_and_what_we_write_is_read(reader: CoreReader, tmp_path: Path) -> None:
    import safetensors.numpy

    write_arrays(tmp_path / "ours", tensor_files.ARRAYS)
    safetensors.numpy.save_file(tensor_files.ARRAYS, tmp_path / "theirs", metadata={"format": "np"})
    for name in ("ours", "theirs"):
        data = (tmp_path / name).read_bytes()
        same_tensors(reader.tensors(data), tensors_from_buffer(memoryview(data), name))


# ---- the manifest --------------------------------------------------------------------------------------------------------


def both_refuse(reader: CoreReader, data: bytes) -> tuple[BespokeError, BespokeError]:
    with pytest.raises(BundleError) as theirs:
        read_manifest(data)
    ours = refused(reader, "manifest", data)
    assert type(ours) is type(theirs.value), str(ours)
    return ours, theirs.value


def test_each_field_removed_is_refused_and_named(
    reader: CoreReader, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fields = schema_fields(manifest_schema())
    for path in fields.values():
        doctored = copy.deepcopy(document)
        holder, shown = instance(doctored, path)
        del holder[path[-1]]
        ours, theirs = both_refuse(reader, as_bytes(doctored))
        assert (ours.subject, ours.got, ours.expected) == (theirs.subject, theirs.got, theirs.expected)
        assert ours.subject == f"manifest.json: {shown}"
    with capsys.disabled():
        print(f"\nmanifest fields removed one by one: {len(fields)} refused and named by the core")


def test_an_unknown_field_and_a_wrong_type_are_refused_at_every_level(
    reader: CoreReader, document: dict[str, Any]
) -> None:
    fields = schema_fields(manifest_schema())
    for path in {tuple(path[:-1]): path for path in fields.values()}.values():
        doctored = copy.deepcopy(document)
        instance(doctored, path)[0]["novelty"] = 1
        ours, theirs = both_refuse(reader, as_bytes(doctored))
        assert ours.subject == theirs.subject
    wrong: Any
    for path in fields.values():
        for wrong in ([[]], {"a": {}}, -(2**62)):
            doctored = copy.deepcopy(document)
            holder, shown = instance(doctored, path)
            holder[path[-1]] = wrong
            try:
                read_manifest(as_bytes(doctored))
            except BundleError:
                ours, _ = both_refuse(reader, as_bytes(doctored))
                assert shown.split(".", 1)[0] in ours.subject, str(ours)
            else:
                reader.manifest(as_bytes(doctored))


def test_several_faults_are_named_together(reader: CoreReader, document: dict[str, Any]) -> None:
    doctored = copy.deepcopy(document)
    del doctored["golden"], doctored["lora"]["rank"]
    doctored["novelty"] = 1
    ours, theirs = both_refuse(reader, as_bytes(doctored))
    for name in ("3 fields", "golden", "lora.rank", "novelty"):
        assert name in ours.subject
        assert name in theirs.subject


def test_a_manifest_that_contradicts_itself_is_refused(reader: CoreReader, document: dict[str, Any]) -> None:
    for what, doctored in edits(document):
        ours, theirs = both_refuse(reader, as_bytes(doctored))
        if theirs.subject.startswith("manifest.json: files") and what != "name":
            assert (ours.subject, ours.got) == (theirs.subject, theirs.got)
        else:
            assert ours.subject.split(":")[0] == "manifest.json"
            assert what in str(ours), f"{what}: {ours}"


@pytest.mark.parametrize("version", [{"major": a, "minor": b} for a, b in ((2, 0), (0, 9), (1, 9), (1, -1))])
def test_other_versions_are_refused_as_such(
    reader: CoreReader, document: dict[str, Any], version: dict[str, int]
) -> None:
    ours, theirs = both_refuse(reader, as_bytes({**document, "format_version": version, "unknown": 1}))
    assert isinstance(ours, BundleVersionError)
    assert ours.args == theirs.args


def test_a_document_of_1_0_is_read_and_has_nothing_of_later_ones(reader: CoreReader, document: dict[str, Any]) -> None:
    old = of_1_0(document)
    ours = reader.manifest(as_bytes(old))
    assert (ours["text"]["tokenizer_bin"], ours["targets"][0]["artifacts"][0]["baked"]) == (None, [])
    for path, holder, value, _ in later_fields(old):
        holder[path.rsplit(".", 1)[-1]] = value
        refusals = both_refuse(reader, as_bytes(old))
        assert refusals[0].args == refusals[1].args
        del holder[path.rsplit(".", 1)[-1]]


def test_a_document_may_have_no_plan_for_answers_or_no_method(reader: CoreReader, document: dict[str, Any]) -> None:
    assert reader.manifest(as_bytes(manifests.of_1_1(document)))["generation"] is None
    (target,) = reader.manifest(as_bytes(manifests.of_1_3(document)))["targets"]
    assert (target["features"], [artifact["numbers"] for artifact in target["artifacts"]]) == ([], [{}, {}])
    assert reader.manifest(as_bytes(manifests.without_methods(document)))["methods"] == []


@pytest.mark.parametrize("data", [case[0] for case in AMBIGUOUS])
def test_json_with_two_meanings_is_refused(reader: CoreReader, document: dict[str, Any], data: bytes) -> None:
    """As a whole document, and as the value of a member of a manifest that is sound otherwise."""
    both_refuse(reader, data)
    text = as_bytes(document)
    both_refuse(reader, text[:-1] + b', "more": ' + data + b"}")
    both_refuse(reader, text.replace(b'"staged": true', b'"staged": ' + data))


@pytest.mark.parametrize(
    "character",
    ["\u00a0", "\u00ad", "\u200b", "\u202e", "\ufeff", "\u2028", "\x7f", "\x85", "\ue000", "\x00", "ä", "漢", "😀"],
)
def test_names_may_hold_what_may_stand_on_a_terminal(
    reader: CoreReader, document: dict[str, Any], character: str
) -> None:
    doctored = copy.deepcopy(document)
    doctored["model"]["name"] = f"a{character}b"
    if character.isprintable():
        assert reader.manifest(as_bytes(doctored))["model"]["name"] == f"a{character}b"
        doctored["model"]["name"] = character * 256
        reader.manifest(as_bytes(doctored))
        doctored["model"]["name"] = character * 257
    assert "model.name" in both_refuse(reader, as_bytes(doctored))[0].subject


# ---- tensors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [case[0] for case in tensor_files.LYING_HEADERS])
def test_headers_that_lie_are_refused(reader: CoreReader, tmp_path: Path, header: Any) -> None:
    data = tensor_files.craft(tmp_path / "f", header, bytes(8)).read_bytes()
    with pytest.raises(BundleError):
        tensors_from_buffer(memoryview(data), "file")
    assert refused(reader, "tensors", data).subject.startswith("file")


@pytest.mark.parametrize("length", tensor_files.LENGTHS_TOO_LARGE)
def test_header_lengths_beyond_file_or_cap_are_refused(reader: CoreReader, length: int) -> None:
    assert isinstance(refused(reader, "tensors", length.to_bytes(8, "little") + b'{"a":0}'), BundleError)


# ---- settings ------------------------------------------------------------------------------------------------------------


def test_settings_of_a_run_are_overridden_or_refused_by_name(reader: CoreReader) -> None:
    base = Training()
    text = base.model_dump_json()
    for values in (
        {},
        {"steps": 7, "clip_norm": 0.5},
        {"sequence_lengths": [8, 16], "learning_rate": 1},
        {"clip_norm": None},
    ):
        ours = reader.ask("training", json.dumps(values).encode(), base=text)
        assert Training.model_validate(ours) == settings_from(Training, "train", {**base.model_dump(), **values})
    for wrong in (
        {"stepz": 1},
        {"steps": 0},
        {"steps": 1.0},
        {"seed": 2**63},
        {"schedule": "no"},
        {"packing": 1},
        {"learning_rate": "1"},
    ):
        with pytest.raises(ConfigError) as theirs:
            settings_from(Training, "train", {**base.model_dump(), **wrong})
        with pytest.raises(ConfigError) as caught:
            reader.ask("training", json.dumps(wrong).encode(), base=text)
        assert caught.value.subject == theirs.value.subject
    with pytest.raises(ConfigError, match="2 settings"):
        reader.ask("training", b'{"steps": 0, "seed": -1}', base=text)
    for data in (b"[]", b"", b'{"steps": 1, "steps": 2}'):
        with pytest.raises(ConfigError):
            reader.ask("training", data, base=text)
