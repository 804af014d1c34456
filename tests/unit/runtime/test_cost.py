# SPDX-License-Identifier: Apache-2.0
"""The workspace of a call in the torch runtime is read off the program that it runs, for a plan made for any target."""

from __future__ import annotations

from typing import Any

import pytest

from bespoke import plugins
from bespoke.graph.export import program_bytes
from bespoke.ops.live_storage import Step, largest_live
from bespoke.ops.load_program import load_program
from bespoke.plan.costs import TORCH_COSTS
from bespoke.runtime.machine import Machine
from bespoke.system.guard import MemoryGuard
from bespoke.testing.rig import Case, planned
from bespoke.testing.tiny import shared_tracer
from tests.bundles import stories_bundle  # noqa: F401


@pytest.mark.parametrize("method", ["mesp", "mebp"])
def test_a_program_takes_what_was_estimated_from_its_graph(method: str) -> None:
    optimizer = plugins.get("optimizer", method)
    plan = planned(optimizer, optimizer.Options(), Case.of("normed", 9, 2))
    graphs = shared_tracer().graphs
    for reference in plan.graphs[:: 1 if method == "mebp" else 3]:
        graph = graphs[reference.key]
        assert load_program(program_bytes(graph.export()), graph.name).meta["workspace_bytes"] == graph.workspace_bytes
        assert graph.in_place_bytes <= graph.workspace_bytes + 2_000_000  # native scratch does not shrink with the model


@pytest.mark.xdist_group("stories_bundle")
def test_a_machine_estimates_for_torch_what_its_plan_says_of_torch(stories_bundle: Any) -> None:  # noqa: F811
    from bespoke.bundle.reader import open_bundle

    bundle = open_bundle(stories_bundle)
    record = bundle.manifest.methods[0]
    machine = Machine(bundle, record, MemoryGuard(None, 0))
    assert machine.estimate_bytes == max(plan.estimate.peak_bytes for plan in record.plans)
    assert machine.estimate_bytes > TORCH_COSTS.constant_bytes


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
