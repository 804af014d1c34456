# SPDX-License-Identifier: Apache-2.0
"""A host that somebody else wrote: what it knows of a bundle's specs stands in manifest.json, and it runs each of them."""

from __future__ import annotations

import ctypes as c
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.core import engine_table, finding
from bespoke.core.engine_table import Artifact
from bespoke.core.torch_engine import TorchEngine, wanted_specs
from bespoke_plugins.targets.coreml.mil import Interpreter, read_spec
from tests.apple.coreml.plans import answered, build, trained
from tests.support.bundles import made_once

pytestmark = [
    pytest.mark.apple,
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]

LARGEST = 2**30  # largest integer of the view "value"


class Host(TorchEngine):
    """An engine that uses the SDK's interpreter in place of Core ML, and the table through which the core gives it tensors."""

    name, runs_graphs = "coreml", False

    def __init__(self, bundle: Path) -> None:
        super().__init__()
        manifest = json.loads((bundle / "manifest.json").read_bytes())
        (target,) = (target for target in manifest["targets"] if target["name"] == "coreml")
        self.bundle = bundle
        self.graphs = {graph["key"]: graph for graph in manifest["graphs"]}
        self.records = {manifest["files"][artifact["file"]]["sha256"]: artifact for artifact in target["artifacts"]}
        self.features = {(one["tensor_dtype"], tuple(one["tensor_shape"])): one for one in target["features"]}
        self.ran: set[str] = set()

    def open(self, artifact: Artifact) -> int:
        record = self.records[hashlib.sha256(c.string_at(artifact.bytes, artifact.size)).hexdigest()]
        graph = self.graphs[record["graph"]]
        inputs = {spec["name"]: spec for spec in graph["inputs"]}
        takes, gives = [inputs[name] for name in record["operands"]], graph["outputs"]
        program = Interpreter(read_spec(self.bundle / record["file"]))

        def run(*operands: torch.Tensor) -> Sequence[torch.Tensor]:
            self.ran.add(record["file"])
            given = {f"x{i}": self.to_feature(*pair) for i, pair in enumerate(zip(takes, operands, strict=True))}
            made = program.run(given)
            return [self.from_feature(spec, made[f"y{i}"]) for i, spec in enumerate(gives)]

        return self._hold(run, *wanted_specs(artifact))

    def to_feature(self, spec: dict[str, Any], tensor: torch.Tensor) -> np.ndarray:
        array = tensor.contiguous().numpy()
        feature = self.features.get((spec["dtype"], tuple(spec["shape"])))
        if feature is None:
            return array
        if feature["view"] == "value":
            array = np.clip(array, -LARGEST, LARGEST).astype(feature["dtype"])
        return array.reshape(-1).view(feature["dtype"]).reshape(feature["shape"])

    def from_feature(self, spec: dict[str, Any], array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array).astype(spec["dtype"]).reshape(spec["shape"]))


@pytest.fixture(params=["int32", pytest.param("int8", marks=pytest.mark.slow)])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        build("llama", folder, weights=request.param, methods=["mesp"])

    return made_once(tmp_path_factory, f"coreml-host-{request.param}", make) / "bundle"


def test_each_spec_runs_by_what_the_manifest_says(bundle: Path, tmp_path: Path) -> None:
    training, answering = Host(bundle), Host(bundle)
    losses = trained(bundle, tmp_path / "host", training, "mesp")["losses"]
    assert losses == pytest.approx(trained(bundle, tmp_path / "torch", "torch", "mesp")["losses"], rel=1e-6)
    loss, tokens = answered(bundle, tmp_path / "host", answering)
    expected, wanted = answered(bundle, tmp_path / "torch", "torch")
    assert loss == pytest.approx(expected, rel=1e-6)
    assert tokens == wanted
    assert training.ran | answering.ran == {record["file"] for record in training.records.values()}
    assert {feature["view"] for feature in training.features.values()} == {"same", "bytes", "value"}


def test_tensors_that_cross_as_they_are_take_no_line(bundle: Path) -> None:
    """And the others one each, however many specs have them."""
    host = Host(bundle)
    specs = [(side, spec) for graph in host.graphs.values() for side in ("inputs", "outputs") for spec in graph[side]]
    kinds = {(spec["dtype"], tuple(spec["shape"])) for _, spec in specs}
    others = {kind for kind in kinds if kind[0] in ("uint8", "int64") or not kind[1]}
    assert host.features.keys() == others
    assert len(others) < len(specs) / 10
    del engine_table._engines[host.table.context]  # no core took it
