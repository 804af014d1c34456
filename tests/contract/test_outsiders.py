# SPDX-License-Identifier: Apache-2.0
"""A method of an outsider's kind, with a scalar and a state of its own, in both runtimes: bound by name, trained, verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from tests.models import tiny_model
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import add_numbers


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outsider")
    model = tiny_model(
        "llama", folder / "model", num_hidden_layers=1, hidden_size=32, intermediate_size=32, num_attention_heads=4
    )
    training = Training(learning_rate=0.05, sequence_lengths=(16,), batch_size=2, steps=4, accumulation=2, general_share=0)
    personalizer = Personalizer(
        model, {"momentum_fa": {"momentum": 0.75}}, "executorch", lora=Lora(rank=2), training=training, data=None
    )
    return personalizer.build(folder / "bundle")


def test_its_scalar_is_in_the_manifest_and_in_no_graph(bundle: Path) -> None:
    (method,) = json.loads((bundle / "manifest.json").read_bytes())["methods"]
    assert method["scalars"] == {"option.momentum": 0.75}
    plan = json.loads((bundle / method["plans"][0]["file"]).read_bytes())
    names = {v["place"].get("name") for v in plan["values"] if v["role"] == "scalar"}
    assert "option.momentum" in names


@pytest.mark.parametrize("runtime", ["torch", "core"])
def test_it_verifies(bundle: Path, runtime: str) -> None:
    checks = bespoke("verify", bundle, "--runtime", runtime, "--format", "json").ok().json
    assert "gradient" in json.dumps(checks)


def test_both_runtimes_train_it_alike(bundle: Path, tmp_path: Path) -> None:
    losses: dict[str, tuple[float, ...]] = {}
    for runtime in ("torch", "core"):
        with PersonalModel.open(bundle, tmp_path / runtime, runtime=runtime) as model:  # type: ignore[arg-type]
            add_numbers(model)
            losses[runtime] = model.train(steps=4).losses
    np.testing.assert_allclose(losses["torch"], losses["core"], rtol=1e-5)
    assert losses["torch"][-1] != losses["torch"][0]
