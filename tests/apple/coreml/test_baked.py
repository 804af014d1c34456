# SPDX-License-Identifier: Apache-2.0
"""Weights as constants of specs: the contract, and a bundle whose manifest says what is in which."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import plugins
from bespoke.bundle.reader import open_bundle
from bespoke.contracts import CompilingTarget
from bespoke.errors import BundleError
from bespoke.testing import check_target
from tests.apple.coreml.test_plans import build, example, numbers, opened_core

pytestmark = [pytest.mark.apple, pytest.mark.slow]


def test_the_target_keeps_its_contract_with_weights_inside() -> None:
    target = plugins.get("target", "coreml")
    assert isinstance(target, CompilingTarget)
    report = check_target(target, target.Options(weights="baked"), tolerance=1e-5)
    assert report.opened == report.lowered > 150


def test_a_bundle_has_a_spec_for_each_graph_and_each_set_of_weights(tmp_path: Path) -> None:
    build("llama", tmp_path, weights="baked", methods=["mesp"])
    with open_bundle(tmp_path / "bundle") as opened:
        opened.verify_files()
        (target,) = opened.manifest.targets
        graphs = {graph.key: graph for graph in opened.manifest.graphs}
        with_weights = [artifact for artifact in target.artifacts if artifact.baked]
        assert len(with_weights) > len({artifact.graph for artifact in with_weights}) >= 5
        assert len({artifact.file for artifact in target.artifacts}) == len(target.artifacts)
        for artifact in target.artifacts:
            names = [spec.name for spec in graphs[artifact.graph].inputs]
            assert [name for name in names if name in artifact.operands] == list(artifact.operands)
            left = {name for name in names if name.endswith((".codes", ".scales"))} - {one.operand for one in artifact.baked}
            assert left <= set(artifact.operands)  # what the graph does not use
    given = [example(tokens) for tokens in numbers(4, 15, 9)]
    says = "no artifact of target 'coreml'"
    with opened_core(tmp_path / "bundle", tmp_path / "state", "mil") as core, pytest.raises(BundleError, match=says):
        core.evaluate("train", given)
