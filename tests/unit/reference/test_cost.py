# SPDX-License-Identifier: Apache-2.0
"""The workspace of a call in the torch runtime is read off the program that it runs, for a plan made for any target."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import plugins
from bespoke.bundle.reader import read_bundle
from bespoke.graph.export import program_bytes
from bespoke.ops.live_storage import Step, largest_live
from bespoke.ops.load_program import load_program
from bespoke.plan.costs import TORCH_COSTS
from bespoke.plan.instructions import Call
from bespoke.plan.read import read_plan
from bespoke.reference.graph_function import GraphFunction
from bespoke.testing.rig import Case, planned
from bespoke.testing.tiny import shared_tracer
from tests.support.bundles import stories_bundle

__all__ = ["stories_bundle"]


@pytest.mark.parametrize("method", ["mesp", "mebp"])
def test_a_program_takes_what_was_estimated_from_its_graph(method: str) -> None:
    optimizer = plugins.get("optimizer", method)
    plan = planned(optimizer, optimizer.Options(), Case.of("normed", 9, 2))
    graphs = shared_tracer().graphs
    for reference in plan.graphs[:: 1 if method == "mebp" else 3]:
        graph = graphs[reference.key]
        assert load_program(program_bytes(graph.export()), graph.name).meta["workspace_bytes"] == graph.workspace_bytes
        assert (
            graph.in_place_bytes <= graph.workspace_bytes + 2_000_000
        )  # native scratch does not shrink with the model


@pytest.mark.xdist_group("stories_bundle")
def test_a_plan_for_torch_estimates_what_its_programs_say(stories_bundle: Path) -> None:
    with read_bundle(stories_bundle) as bundle:
        graphs = {graph.key: graph for graph in bundle.manifest.graphs}
        for _, _, record in bundle.manifest.plans:
            plan = read_plan(bundle.read(record.file), record.file, list(graphs.values()))
            called = {i.graph for code in plan.sections.values() for i in code if isinstance(i, Call)}
            programs = [graphs[plan.graphs[number].key] for number in called]
            workspace = max(GraphFunction(bundle.read(graph.file), graph).workspace_bytes for graph in programs)
            records = len(plan.values) + sum(map(len, plan.sections.values()))
            costs = TORCH_COSTS.constant_bytes + TORCH_COSTS.record_bytes * records
            assert (
                record.estimate.peak_bytes
                == plan.estimate.arena_bytes + workspace + costs + plan.estimate.session_bytes
            )


def test_living_storages_are_summed_and_those_elsewhere_are_not() -> None:
    steps = [
        Step("x", 0, [], 0),
        Step("a", 100, ["x"], 0),
        Step("b", 30, ["a"], 5),
        Step("b", 0, ["b"], 0),  # a view
        Step("c", 60, ["b"], 0),
        Step("results", 0, ["c"], 0),
    ]
    assert largest_live(steps, ["x"]) == 135
    assert largest_live(steps, ["x", "a"]) == 90
    assert largest_live(steps, ["x", "a", "c"]) == 35
