# SPDX-License-Identifier: Apache-2.0
"""Plans in the core's reader: the same words for a rule broken, every field required and typed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import BespokeError, BundleVersionError, PlanError
from bespoke.plan.instructions import PLAN_VERSION
from bespoke.plan.read import read_plan
from tests.native.both_readers import reader, sample
from tests.native.format_lab import CoreReader, refused
from tests.support.bundles import stories_bundle
from tests.unit.plan.broken import RULES, Sample
from tests.unit.plan.drafts import Draft, document_of, replayable

__all__ = ["reader", "sample", "stories_bundle"]


SCHEMAS = Path(__file__).resolve().parents[2] / "bindings" / "schema"


def plans_refused(reader: CoreReader, document: Any, graphs: Any) -> tuple[BespokeError, BespokeError]:
    data = json.dumps(document).encode()
    with pytest.raises((PlanError, BundleVersionError)) as theirs:
        read_plan(data, "plan", graphs)
    ours = refused(reader, "plan", data, graphs)
    assert type(ours) is type(theirs.value), str(ours)
    return ours, theirs.value


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_broken_is_refused_in_the_same_words(reader: CoreReader, sample: Sample, rule: str) -> None:
    doctored = copy.deepcopy(sample.document)
    RULES[rule][0](sample, doctored)
    ours, theirs = plans_refused(reader, doctored, sample.draft.graphs)
    assert ours.subject == theirs.subject
    if not ours.got.startswith("the range") and ours.subject != "plan: sections":  # whose order the core does not keep
        assert (ours.got, ours.expected) == (theirs.got, theirs.expected)


def test_a_record_of_another_shape_is_refused(reader: CoreReader) -> None:
    draft = replayable()
    document = document_of(draft.compile())
    kept = next(number for number, value in enumerate(document["values"]) if value["role"] == "recorded")
    document["values"][kept]["shape"] = [2]
    graphs = draft.graphs
    graphs[1].inputs[1].shape = (2,)
    ours, theirs = plans_refused(reader, document, graphs)
    assert (ours.subject, ours.got) == (theirs.subject, theirs.got)


def plan_records(draft: Draft) -> Iterator[tuple[str, dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]]:
    """(definition of the schema, the plan document that has one, how to reach it): each definition once."""
    document = document_of(draft.compile())
    yield "Plan", document, lambda d: d
    yield "Estimate", document, lambda d: d["estimate"]
    yield "GraphRef", document, lambda d: d["graphs"][0]
    yield "ValueRecord", document, lambda d: d["values"][0]
    for kind in ("arena", "named", "number", "scratch"):
        place = next((n for n, value in enumerate(document["values"]) if value["place"]["kind"] == kind), None)
        if place is not None:
            yield kind.capitalize(), document, lambda d, n=place: d["values"][n]["place"]  # type: ignore[misc]
    for section, code in document["sections"].items():
        for n, instruction in enumerate(code):
            yield instruction["op"].capitalize(), document, lambda d, s=section, n=n: d["sections"][s][n]  # type: ignore[misc]
            if instruction["op"] == "call":
                yield "Result", document, lambda d, s=section, n=n: d["sections"][s][n]["results"][0]  # type: ignore[misc]


def test_every_field_of_the_schema_of_plans_is_required_and_typed(
    reader: CoreReader, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enumerated from the schema, so that a new instruction or field without a reader shows here."""
    schema = json.loads((SCHEMAS / "plan.schema.json").read_bytes())
    spilled = replayable()
    number = spilled.value((), "constant", role="constant", lifetime="call", dtype="int64", number=7)
    spilled.emit_number("loss", number)
    spilled.zeros()
    spilled.store(spilled.adapter("block_01.q_proj.lora_A"), [spilled.make([[spilled.weight("block_01")]])])
    spilled.section = "federated_measure"
    brought = spilled.receive("guidance")
    spilled.send(spilled.record(brought))
    spilled.section = "federated_apply"
    spilled.store(spilled.adapter("block_01.q_proj.lora_B"), [spilled.zeros()])
    scratch = Draft()
    made = scratch.make([[scratch.batch()]])
    scratch.emit("made", made)
    found: dict[str, tuple[dict[str, Any], Any, Draft]] = {}
    for draft in (spilled, scratch):
        for name, document, reach in plan_records(draft):
            found.setdefault(name, (document, reach, draft))
    if "Scratch" not in found:
        document = document_of(scratch.compile(spilled=[made]))
        found["Scratch"] = (document, lambda d: d["values"][made]["place"], scratch)
        read_plan(json.dumps(document).encode(), "plan", scratch.graphs)
    definitions = {"Plan": schema, **schema["$defs"]}
    assert found.keys() == definitions.keys()
    count = 0
    for name, definition in definitions.items():
        document, reach, draft = found[name]
        assert set(definition["required"]) == set(definition["properties"]) == set(reach(document))
        reader.plan(json.dumps(document).encode(), draft.graphs)
        for field in definition["properties"]:
            for wrong in ("remove", {"a": 1}, [[["x"]]], 1.5, -(2**63)):
                doctored = copy.deepcopy(document)
                if wrong == "remove":
                    del reach(doctored)[field]
                else:
                    reach(doctored)[field] = wrong
                if (field, wrong) in (("number", -(2**63)), ("choices", {"a": 1})):
                    continue  # which are right
                ours, _ = plans_refused(reader, doctored, draft.graphs)
                assert field in ours.subject or wrong != "remove", str(ours)
                count += 1
        doctored = copy.deepcopy(document)
        reach(doctored)["novelty"] = 1
        assert "novelty" in plans_refused(reader, doctored, draft.graphs)[0].subject
    with capsys.disabled():
        print(
            f"\nplans with a field removed or of another type: {count} refused, in {len(definitions)} records of the schema"
        )


@pytest.mark.parametrize("version", [[PLAN_VERSION[0], PLAN_VERSION[1] + 1], [2, 0], [0, 9], [1, -1]])
def test_other_versions_of_plans_are_not_reported_as_damage(
    reader: CoreReader, sample: Sample, version: list[int]
) -> None:
    ours, theirs = plans_refused(reader, {**sample.document, "version": version, "novelty": []}, sample.draft.graphs)
    assert ours.args == theirs.args


def test_sizes_beyond_every_memory_are_refused_and_not_computed(reader: CoreReader, sample: Sample) -> None:
    for shape in ([2**40] * 8, [2**40, 2**40], [2**32, 2**31]):
        doctored = copy.deepcopy(sample.document)
        doctored["values"][sample.tokens]["shape"] = shape
        assert (
            f"value {sample.tokens}"
            in refused(reader, "plan", json.dumps(doctored).encode(), sample.draft.graphs).subject
        )
