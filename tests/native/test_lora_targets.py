# SPDX-License-Identifier: Apache-2.0
"""Bundles whose adapters sit on some linears only: both runtimes prove them, train alike and refuse others; peft takes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.config import Linear
from bespoke.core import finding
from bespoke.errors import AdapterError, BundleError, StateError
from bespoke.golden.prover import verify_bundle
from tests.native.lora_targets import ASKED, comes_back_and_is_the_same_in_peft
from tests.native.parity import bundle_of, compare, examples, replay
from tests.support.bundles import made_once
from tests.support.models import tiny_model
from tests.unit.golden.bundles import changed, rewrite_manifest, tensors

SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
CHOSEN: dict[str, tuple[Linear, ...]] = {
    "llama": ("q_proj", "v_proj"),
    "gemma3_text": ("o_proj", "gate_proj", "down_proj"),
}
METHODS: dict[str, dict[str, Any]] = {
    "mesp": {"learning_rate": 2e-3, "accumulation": 2},
    "mebp": {"update": "sgd", "learning_rate": 0.02},
    "mezo": {"epsilon": 1e-2, "queries": 2, "learning_rate": 1e-3},
}


pytestmark = [
    pytest.mark.skipif(finding.find().path is None, reason="the device core is not installed"),
    pytest.mark.xdist_group("lora_targets"),
    pytest.mark.slow,  # bundles of their own; tests/gradients has the same for the reference
]


def made(factory: pytest.TempPathFactory, family: str) -> Path:
    """A folder with `model` and `bundle`, built once; read them, do not change them."""

    def make(folder: Path) -> None:
        model = tiny_model(family, folder / "model", **SIZES)
        training = Training(sequence_lengths=(12,), batch_size=2, steps=10, seed=1)
        bundle_of(model, folder / "bundle", METHODS, training, Lora(rank=3, alpha=6.0, targets=CHOSEN[family]))

    return made_once(factory, f"some_linears_{family}", make)


@pytest.fixture(scope="module", params=list(CHOSEN))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory, request.param)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory, "llama")


def test_both_runtimes_prove_such_a_bundle_for_every_method(folder: Path, tmp_path: Path) -> None:
    with read_bundle(folder / "bundle") as bundle:
        expected = verify_bundle(bundle)
    with PersonalModel.open(folder / "bundle", tmp_path, engine="executorch") as model:
        report = model._engine.verify()  # type: ignore[attr-defined]
    assert report["golden"]
    assert [(c["what"], c["method"], c["compared"]) for c in report["checks"]] == [
        (c.what, c.method, c.compared) for c in expected.checks
    ]
    done = {(check.method, check.what) for check in expected.checks}
    assert {("mesp", "gradients"), ("mebp", "gradients"), ("mezo", "replay of step 1")} <= done
    assert all(check["worst"] < 1 for check in report["checks"])


def test_both_runtimes_train_the_same_adapter(llama: Path, tmp_path: Path) -> None:
    compare(llama / "bundle", tmp_path, "adamw", ("mesp",))
    replay(llama / "bundle", tmp_path)


def test_a_trained_adapter_gives_the_same_loss_in_peft_and_comes_back(folder: Path, tmp_path: Path) -> None:
    with PersonalModel.open(folder / "bundle", tmp_path / "state", engine="executorch") as model:
        examples(model)
        before = model.evaluate(ASKED).loss
        assert model.train(run_steps=5, method="mesp").accepted
        ours = model.evaluate(ASKED).loss
        adapter = model.export_adapter(tmp_path / "adapter")
    assert abs(ours - before) > 1e-3
    with read_bundle(folder / "bundle") as bundle:
        chosen = bundle.manifest.lora.linears
    assert chosen in CHOSEN.values()
    assert json.loads((adapter / "adapter_config.json").read_bytes())["target_modules"] == sorted(chosen)
    comes_back_and_is_the_same_in_peft(folder, adapter, ours, tmp_path)


def test_a_state_or_an_adapter_of_other_linears_is_refused(llama: Path, tmp_path: Path) -> None:
    lora, training = Lora(rank=3, alpha=6.0), Training(sequence_lengths=(12,))
    every = Personalizer(llama / "model", "mezo", "torch", lora=lora, training=training, data=None).build(
        tmp_path / "every"
    )
    with PersonalModel.open(every, tmp_path / "state") as model:
        adapter = model.export_adapter(tmp_path / "adapter", base=True)
    with pytest.raises(StateError, match="other names or shapes"):
        PersonalModel.open(llama / "bundle", tmp_path / "state")
    with (
        PersonalModel.open(llama / "bundle", tmp_path / "fresh") as model,
        pytest.raises(AdapterError, match="q_proj, v_proj, as the bundle has"),
    ):
        model.import_adapter(adapter)


def without_v(arrays: dict[str, np.ndarray]) -> None:
    del arrays["block_01.v_proj.lora_B"]


def with_k(arrays: dict[str, np.ndarray]) -> None:
    arrays["block_01.k_proj.lora_B"] = arrays["block_01.v_proj.lora_B"]


def of_another_rank(arrays: dict[str, np.ndarray]) -> None:
    arrays["block_01.v_proj.lora_B"] = arrays["block_01.v_proj.lora_B"][:, :2].copy()


@pytest.mark.parametrize(
    ("change", "piece"),
    [
        (without_v, "block_01.v_proj.lora_B"),
        (with_k, "block_01.k_proj.lora_B"),
        (of_another_rank, "block_01.v_proj.lora_B"),
    ],
)
def test_both_readers_hold_the_adapter_to_the_linears_of_the_manifest(
    change: Callable[[dict[str, np.ndarray]], None], piece: str, llama: Path, tmp_path: Path
) -> None:
    bundle = changed(llama / "bundle", tmp_path / "b", "adapter/initial.safetensors", tensors(change))
    refused_by_both(bundle, tmp_path / "state", piece)


def test_both_readers_refuse_other_linears_than_the_adapter_has(llama: Path, tmp_path: Path) -> None:
    shutil.copytree(llama / "bundle", tmp_path / "b")
    content = json.loads((tmp_path / "b" / "manifest.json").read_bytes())
    content["lora"]["linears"] = ["q_proj", "o_proj"]
    rewrite_manifest(tmp_path / "b", content)
    refused_by_both(tmp_path / "b", tmp_path / "state", "block_00.o_proj.lora_A")


def refused_by_both(bundle: Path, state: Path, piece: str) -> None:
    with read_bundle(bundle) as opened, pytest.raises(BundleError) as ours:
        verify_bundle(opened)
    with pytest.raises(BundleError) as theirs:
        PersonalModel.open(bundle, state)
    for error in (ours.value, theirs.value):
        assert error.subject.endswith(f"adapter/initial.safetensors: {piece}")
        assert error.expected.endswith("as lora says")
