# SPDX-License-Identifier: Apache-2.0
"""A target without artifacts: bundles, estimates and reports of it, and where one that needs a GPU opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke import BespokeError, Personalizer, PersonalModel, Training
from bespoke.contracts import TORCH_COSTS, Settings, Target
from bespoke.errors import BundleError, PluginError
from bespoke.reference.device import device_for
from bespoke.testing import check_target
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke

TRAINING = Training(sequence_lengths=(24,))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("without") / "model", num_hidden_layers=1)


def build(model: Path, out: Path, targets: Any) -> Path:
    return Personalizer(model, "mesp", targets, training=TRAINING, data=None).build(out)


@pytest.fixture(scope="module")
def for_gpus(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(model, tmp_path_factory.mktemp("gpu") / "bundle", "cuda")


@pytest.mark.slow
def test_a_bundle_of_it_holds_the_graphs_and_no_artifact(model: Path, tmp_path: Path) -> None:
    one, two = build(model, tmp_path / "torch", "torch"), build(model, tmp_path / "both", ["torch", "cuda"])
    assert [path.name for path in (one / "graphs").iterdir()] == ["exported"]
    names = [target["name"] for target in json.loads((two / "manifest.json").read_bytes())["targets"]]
    assert names == ["torch", "cuda"]
    for name in ("plans", "weights", "adapter", "golden", "graphs"):
        files = [path.relative_to(one) for path in sorted((one / name).rglob("*")) if path.is_file()]
        assert files
        assert all((one / file).read_bytes() == (two / file).read_bytes() for file in files)


@pytest.mark.slow
def test_it_is_estimated_as_it_is_built(model: Path, tmp_path: Path) -> None:
    personalizer = Personalizer(model, "mesp", training=TRAINING, data=None)
    bundle = personalizer.build(tmp_path / "bundle")
    (plan,) = json.loads((bundle / "manifest.json").read_bytes())["methods"][0]["plans"]
    assert personalizer.estimate().plans[0].estimate.peak_bytes == plan["estimate"]["peak_bytes"] > 0


def test_inspect_shows_it_and_build_says_what_it_cannot_do(model: Path, tmp_path: Path) -> None:
    asked = (
        "build",
        tmp_path / "bundle",
        "--model",
        model,
        "--optimizers",
        "mesp",
        "--sequence-lengths",
        24,
        "--data",
        "none",
    )
    assert "runs on torch only" in bespoke(*asked).ok().out
    assert "for torch" in bespoke("inspect", tmp_path / "bundle").ok().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_bundle_for_a_gpu_alone_does_not_open_where_there_is_none(
    for_gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(BundleError, match="and no GPU that torch") as caught:
        PersonalModel.open(for_gpus, tmp_path / "state")
    assert "GPU" in caught.value.next_step
    assert not (tmp_path / "state").exists()


def test_what_a_bundle_was_built_for_decides_where_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert {
        targets: device_for(targets).type for targets in (("cuda",), ("torch", "cuda"), ("torch",), ("executorch",))
    } == {
        ("cuda",): "cuda",
        ("torch", "cuda"): "cuda",
        ("torch",): "cpu",
        ("executorch",): "cpu",
    }
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for(("executorch", "cuda")).type == "cpu"
    with pytest.raises(BespokeError):
        device_for(("cuda",))


class HalfATarget(Target):
    name = "half"
    Options = Settings

    def __init__(self, costs: Any) -> None:
        self.costs = costs

    def lower(self, graph: Any, folder: Path, options: Any, baked: Any = None) -> Any: ...


def test_the_suite_refuses_lower_without_open() -> None:
    with pytest.raises(PluginError, match="one of lower and open"):
        check_target(HalfATarget(TORCH_COSTS))
