# SPDX-License-Identifier: Apache-2.0
"""On a GPU alone: an app that has allowed tf32 for its own models finds the golden vectors held, and its settings as they were."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.golden.prover import verify_bundle
from bespoke.reference.evaluate import evaluate
from bespoke.reference.machine import Machine
from bespoke.reference.train import train
from tests.support.bundles import made_once
from tests.support.models import tiny_model
from tests.support.torch_settings_lab import SET, digests, put, settings
from tests.unit.personal_model.tiny import add_numbers, number_rows

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

ON_A_GPU: dict[str, Callable[[], AbstractContextManager[Any]]] = SET | {
    "default device cuda": lambda: put(torch.set_default_device, "cuda", None),
    "autocast on the GPU": lambda: torch.autocast("cuda", dtype=torch.bfloat16),
}


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough that torch gives its products to tensor cores where it may."""

    def make(folder: Path) -> None:
        sizes = {"num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
        model = tiny_model("llama", folder / "model", **sizes)
        training = Training(sequence_lengths=(16,), batch_size=2, steps=6, seed=1)
        methods = {"mesp": {"learning_rate": 1e-2}, "mezo": {"learning_rate": 1e-3, "epsilon": 1e-2}}
        personalizer = Personalizer(
            model, methods, ["torch", "cuda"], context=32, lora=Lora(rank=8), training=training, data=None
        )
        personalizer.build(folder / "bundle")

    return made_once(tmp_path_factory, "on_a_gpu", make) / "bundle"


def test_tf32_changes_what_torch_computes_here() -> None:
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    with put(torch.set_float32_matmul_precision, "highest", "highest"):
        exact = a @ b
    with put(torch.set_float32_matmul_precision, "high", "highest"):
        assert not torch.equal(a @ b, exact)


def computed(bundle: Path) -> list[object]:
    """By torch's own operators on the GPU; golden vectors hold."""
    with read_bundle(bundle) as opened:
        assert Machine(opened, opened.method("mesp")).device.type == "cuda"
        assert verify_bundle(opened, files=False).golden
        rows, found = number_rows(), []
        for method in ("mesp", "mezo"):
            trained = train(opened, method, user_rows=rows, seed=1, steps=3)
            found += [trained.losses, digests(trained.adapter)]
        return [*found, evaluate(opened, rows)]


@pytest.mark.parametrize("name", ON_A_GPU)
def test_golden_vectors_hold_and_the_bits_are_the_same_whatever_the_app_has_set(bundle: Path, name: str) -> None:
    plain = computed(bundle)
    with ON_A_GPU[name]():
        before = settings()
        assert computed(bundle) == plain
        assert settings() == before


@pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_training_with_the_kernels_is_the_same_whatever_the_app_has_set(
    bundle: Path, tmp_path: Path, name: str
) -> None:
    def trained(state: Path) -> list[object]:
        with PersonalModel.open(bundle, state, engine="torch") as model:
            add_numbers(model)
            report = model.train()
            assert report.runtime == "gpu"
            return [report.losses, report.validation_loss, model.evaluate().loss]

    plain = trained(tmp_path / "plain")
    with ON_A_GPU[name]():
        before = settings()
        assert trained(tmp_path / "set") == plain
        assert settings() == before
