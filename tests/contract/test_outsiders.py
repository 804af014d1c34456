# SPDX-License-Identifier: Apache-2.0
"""Methods of an outsider's kind in the reference and the core: momentum LoRA-FA with a scalar and a state of its own, bound by
name, trained and verified; and SimPO, a preference loss that asks for arrays, which golden vectors run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.errors import BundleError, DataError, GoldenMismatch
from bespoke.reference.train import train
from tests.support.models import tiny_model
from tests.support.oracle import trained_alike
from tests.support.reading import rows_of_split
from tests.unit.cli.commands import bespoke
from tests.unit.golden.bundles import changed, tensors
from tests.unit.personal_model.tiny import add_numbers

GOLDEN = "golden/golden.safetensors"

pytestmark = pytest.mark.slow  # a bundle of its own


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outsider")
    model = tiny_model(
        "llama", folder / "model", num_hidden_layers=1, hidden_size=32, intermediate_size=32, num_attention_heads=4
    )
    training = Training(
        learning_rate=0.05, sequence_lengths=(16,), batch_size=2, steps=4, accumulation=2, general_share=0
    )
    methods = {"momentum_fa": {"momentum": 0.75}, "simpo": {"beta": 1.5}}
    personalizer = Personalizer(model, methods, "executorch", lora=Lora(rank=2), training=training, data=None)
    return personalizer.build(folder / "bundle")


def test_its_scalar_is_in_the_manifest_and_in_no_graph(bundle: Path) -> None:
    method, _ = json.loads((bundle / "manifest.json").read_bytes())["methods"]
    assert method["scalars"] == {"option.momentum": 0.75}
    plan = json.loads((bundle / method["plans"][0]["file"]).read_bytes())
    names = {v["place"].get("name") for v in plan["values"] if v["role"] == "scalar"}
    assert "option.momentum" in names


@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_they_verify(bundle: Path, engine: str) -> None:
    checks = bespoke("verify", bundle, "--engine", engine, "--format", "json").ok().json["golden"]
    done = {(check["method"], check["what"]) for check in checks}
    assert {("momentum_fa", "gradients"), ("momentum_fa", "loss of step 1"), ("simpo", "loss of step 1")} <= done


@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_a_first_loss_that_is_another_is_found(bundle: Path, engine: str, tmp_path: Path) -> None:
    """With other tokens in an array of its own, the method has another loss."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["array.rejected_targets"] = np.roll(arrays["array.rejected_targets"], 1)

    refused = bespoke("verify", changed(bundle, tmp_path / "bundle", GOLDEN, tensors(change)), "--engine", engine)
    assert "'simpo'" in refused.err
    assert "loss of step 1" in refused.err
    assert refused.code == GoldenMismatch.exit_code


WRONG = {
    "tokens that the model does not know": (
        "rejected_tokens",
        lambda array: np.full_like(array, 10**6),
        "tokens from 1000000",
    ),
    "tokens below 0": ("rejected_tokens", lambda array: array - 10**6, "tokens from -"),
    "another shape": ("rejected_tokens", lambda array: array[:, :-1], r"int32 or float32 [2, "),
    "another type": ("rejected_mask", lambda array: array.astype(np.uint8), r"int32 or float32 [2, "),
    "infinity": ("rejected_mask", lambda array: array + np.float32("inf"), "NaN or infinity"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_golden_arrays_that_could_harm_are_refused(bundle: Path, engine: str, wrong: str, tmp_path: Path) -> None:
    name, change, said = WRONG[wrong]

    def put(arrays: dict[str, np.ndarray]) -> None:
        arrays[f"array.{name}"] = np.ascontiguousarray(change(arrays[f"array.{name}"]))

    refused = bespoke("verify", changed(bundle, tmp_path / "bundle", GOLDEN, tensors(put)), "--engine", engine)
    assert f"array.{name}" in refused.err
    assert said in refused.err
    assert refused.code == BundleError.exit_code


def test_examples_that_hold_no_arrays_are_refused_and_nothing_is_lost(bundle: Path, tmp_path: Path) -> None:
    said = r"Array 'rejected_tokens' of method 'simpo'.*rows without it.*int64 \[2, 16\]"
    with PersonalModel.open(bundle, tmp_path / "state", engine="executorch") as model:
        add_numbers(model)
        with pytest.raises(DataError, match=said):
            model.train(run_steps=2, method="simpo")
        assert model.train(run_steps=2, method="momentum_fa").steps == 2
    with read_bundle(bundle) as opened, pytest.raises(DataError, match=said):
        train(opened, "simpo", user_rows=rows_of_split(tmp_path / "state", "train"), seed=1)


def test_the_core_and_the_reference_train_it_alike(bundle: Path, tmp_path: Path) -> None:
    with PersonalModel.open(bundle, tmp_path / "state", engine="executorch") as model:
        add_numbers(model)
        losses = model.train(run_steps=4).losses
    np.testing.assert_allclose(losses, trained_alike(bundle, tmp_path / "state").losses, rtol=1e-5)
    assert losses[-1] != losses[0]
