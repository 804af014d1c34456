# SPDX-License-Identifier: Apache-2.0
"""Every rule of a plan broken once: the reader refuses it and names section, instruction and value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bespoke.errors import BundleVersionError, PlanError
from bespoke.plan.read import read_plan
from tests.unit.plan.broken import RULES, Sample, value
from tests.unit.plan.drafts import Draft, document_of


@pytest.fixture(scope="module")
def s() -> Sample:
    return Sample()


def test_the_sample_is_sound(s: Sample) -> None:
    s.draft.read(s.document)


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str, s: Sample) -> None:
    change, named, got = RULES[rule]
    error = s.refused(lambda document: change(s, document))
    assert named(s) in error.subject, str(error)
    assert got in error.got, str(error)
    assert error.expected
    assert error.next_step


def test_a_record_has_the_shape_of_its_source() -> None:
    draft = Draft()
    adapter = draft.adapter("block_00.q_proj.lora_A")
    g = draft.make([[draft.batch()]], ())
    kept = draft.record(g)
    draft.store(adapter, [draft.make([[adapter], [kept]])])
    document = document_of(draft.compile())
    assert draft.read(document).replayable
    document["values"][kept]["shape"] = [2]
    document["graphs"], graphs = document["graphs"], draft.graphs
    graphs[1].inputs[1].shape = (2,)
    with pytest.raises(PlanError, match="a record of another shape"):
        read_plan(json.dumps(document).encode(), "plan", graphs)


# ---- the file ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["version", "method", "sections", "values", "estimate", "replayable", "choices", "graphs"]
)
def test_a_missing_field_is_named(field: str, s: Sample) -> None:
    error = s.refused(lambda document: document.pop(field))
    assert field in str(error)


@pytest.mark.parametrize(
    "change",
    [
        lambda s, d: d.update(comment="hello"),
        lambda s, d: s.at(d, "call").update(comment="hello"),
        lambda s, d: s.at(d, "call").update(op="jump"),
        lambda s, d: s.at(d, "call").update(graph="0"),
        lambda s, d: s.at(d, "call").update(graph=-1),
        lambda s, d: value(d, 0).update(shape=[-1]),
        lambda s, d: value(d, 0).update(dtype="float64"),
        lambda s, d: d["sections"].update(warm_up=[]),
        lambda s, d: value(d, s.x)["place"].update(offset=-64),
    ],
)
def test_what_the_format_does_not_know_is_refused(change: Any, s: Sample) -> None:
    s.refused(lambda document: change(s, document))


@pytest.mark.parametrize("version", [[1, 3], [2, 0], [0, 9], [1, -1]])
def test_other_versions_are_not_reported_as_damage(version: list[int], s: Sample) -> None:
    with pytest.raises(BundleVersionError, match="plan version"):
        s.draft.read({**s.document, "version": version})


def test_a_plan_is_written_as_the_oldest_version_that_has_its_sections(s: Sample) -> None:
    assert s.document["version"] == [1, 2]
    finishing = Sample()
    for section in ("decode_rows", "federated_measure", "federated_apply"):
        del finishing.draft.plan.sections[section]
    assert document_of(finishing.draft.compile())["version"] == [1, 1]
    older = Draft()
    adapter = older.adapter("block_00.q_proj.lora_A")
    older.store(adapter, [older.make([[adapter], [older.batch()]])])
    document = document_of(older.compile())
    assert document["version"] == [1, 0]
    older.read(document)
