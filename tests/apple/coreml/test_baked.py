# SPDX-License-Identifier: Apache-2.0
"""Weights as constants of specs: the contract, a manifest that says what is in which, and a core that calls the right one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import plugins
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.errors import BundleError
from bespoke.testing import check_target
from tests.apple.coreml.plans import TENSORS, answered, build, example, numbers, opened_core, trained
from tests.support.bundles import drop_fields_of_1_4, made_once
from tests.unit.golden.bundles import rewrite_manifest

pytestmark = pytest.mark.apple
runs = pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed")

Document = dict[str, Any]
# What a call for the whole of a block's MLP gives: no artifact has it.
PARTS = [f"{name}_proj\\.{part}" for name in ("gate", "up") for part in ("codes", "scales")]
GIVES = " with " + ", ".join(f"block_{{0}}\\.{part} rows 0 to 32" for part in PARTS)
SETS = ".* each set of weights"


@pytest.fixture
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks: one spec of each graph for either of them."""
    return (
        made_once(tmp_path_factory, "coreml-baked", lambda f: build("llama", f, weights="baked", methods=["mesp"]))
        / "bundle"
    )


@pytest.mark.slow
def test_the_target_keeps_its_contract_with_weights_inside() -> None:
    target = plugins.get("target", "coreml")
    report = check_target(target, target.Options(weights="baked"), tolerance=1e-5)
    assert report.opened == report.lowered > 150


def test_a_bundle_has_a_spec_for_each_graph_and_each_set_of_weights(bundle: Path) -> None:
    with read_bundle(bundle) as opened:
        opened.verify_files()
        (target,) = opened.manifest.targets
        graphs = {graph.key: graph for graph in opened.manifest.graphs}
        with_weights = [artifact for artifact in target.artifacts if artifact.baked]
        assert len(with_weights) > len({artifact.graph for artifact in with_weights}) >= 5
        assert len({artifact.file for artifact in target.artifacts}) == len(target.artifacts)
        for artifact in target.artifacts:
            names = [spec.name for spec in graphs[artifact.graph].inputs]
            assert [name for name in names if name in artifact.operands] == list(artifact.operands)
            left = {name for name in names if name.endswith((".codes", ".scales"))} - {
                one.operand for one in artifact.baked
            }
            assert left <= set(artifact.operands)  # what the graph does not use
            assert set(names) - set(artifact.operands) == {*artifact.numbers, *(one.operand for one in artifact.baked)}
        assert any(artifact.numbers for artifact in with_weights)


@runs
def test_the_core_calls_the_spec_that_has_the_weights_of_the_call(bundle: Path, tmp_path: Path) -> None:
    mil, torch = (trained(bundle, tmp_path / engine, engine, "mesp") for engine in ("mil", "torch"))
    assert mil["losses"] == pytest.approx(torch["losses"], rel=1e-6)
    for name, expected in torch.items():
        assert float(np.linalg.norm(mil[name] - expected)) <= TENSORS * np.linalg.norm(expected), name
    (loss, tokens), (wanted_loss, wanted) = (answered(bundle, tmp_path / engine, engine) for engine in ("mil", "torch"))
    assert loss == pytest.approx(wanted_loss, rel=1e-6)
    assert tokens == wanted


def without(document: Document, weight: str) -> list[str]:
    """Leaves out the artifacts that have this weight: their files."""
    (target,) = document["targets"]
    gone = [artifact for artifact in target["artifacts"] if weight in {one["weight"] for one in artifact["baked"]}]
    target["artifacts"] = [artifact for artifact in target["artifacts"] if artifact not in gone]
    return [artifact["file"] for artifact in gone]


def of_another_number(document: Document) -> list[str]:
    """As if the specs had been made for other columns."""
    for artifact in document["targets"][0]["artifacts"]:
        artifact["numbers"] = {name: number + 32 for name, number in artifact["numbers"].items()}
    return []


def of_1_3(document: Document) -> list[str]:
    """Which did not say what columns a spec was made for."""
    document["format_version"]["minor"] = 3
    drop_fields_of_1_4(document)
    return []


@runs
@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (lambda document: without(document, "block_01.down_proj.codes"), f"{GIVES.format('01')}.*, start 0;{SETS}"),
        (lambda document: without(document, "embedding.table.codes"), "; expected one artifact for each graph"),
        (of_another_number, f"{GIVES.format('00')}.*, start 0;{SETS}"),
        (of_1_3, f"{GIVES.format('00')}{SETS}"),
    ],
    ids=["a block's", "the embedding's", "of other columns", "of before"],
)
def test_a_bundle_that_lacks_the_spec_of_a_call_is_refused_by_its_weights(
    bundle: Path, change: Callable[[Document], list[str]], lacks: str, tmp_path: Path
) -> None:
    lacking = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    document = json.loads((lacking / "manifest.json").read_bytes())
    for file in change(document):
        (lacking / file).unlink()
        del document["files"][file]
    rewrite_manifest(lacking, document)
    says = rf"graph '\w+': got no artifact of target 'coreml'{lacks}.*Build the bundle again"
    with opened_core(lacking, tmp_path / "state", "mil") as core, pytest.raises(BundleError, match=says):
        core.evaluate("train", [example(tokens) for tokens in numbers(4, 15, 9)])


def test_constants_with_scales_of_both_signs_are_what_coremltools_decodes() -> None:
    """By the value inference of the operator's owner."""
    import coremltools
    from coremltools.converters.mil import Builder as mb

    from bespoke_plugins.targets.coreml.int4 import _constant

    rng = np.random.default_rng(2)
    nibbles = rng.integers(0, 16, (6, 96)).astype(np.uint8)
    scales = (rng.uniform(0.01, 0.1, (6, 3)) * np.array([1, -1, 0])[rng.integers(0, 3, (6, 3))]).astype(np.float16)
    decoded = (nibbles.astype(np.float32) - 8) * np.repeat(scales.astype(np.float32), 32, axis=1)
    assert {*np.sign(scales).ravel()} == {-1, 0, 1}

    @mb.program(input_specs=[mb.TensorSpec((6, 64))], opset_version=coremltools.target.iOS18)
    def program(x: Any) -> Any:
        return mb.add(x=x, y=_constant(nibbles[:, ::2] | nibbles[:, 1::2] << 4, scales, 32, 64, "fp32"))

    (constant,) = program.functions["main"].find_ops(op_type="constexpr_blockwise_shift_scale")
    np.testing.assert_array_equal(constant.materialized_val_inference(), decoded[:, 32:])
