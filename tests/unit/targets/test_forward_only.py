# SPDX-License-Identifier: Apache-2.0
"""A training step as a program for ExecuTorch's own runtime (bespoke.exports.forward_only): an app in C++ that only calls `forward`
trains with it, and reads from it the B that the plan's form comes to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from bespoke import Lora, Personalizer, Training
from bespoke.bundle.reader import Bundle, open_bundle
from bespoke.errors import ConfigError
from bespoke.exports.forward_only import DECOMPOSITIONS, ForwardOnly
from bespoke.exports.noise_in_graph import noise_in_graph
from bespoke.golden.batch import padded
from bespoke.reference.machine import Machine
from bespoke.rules.batches import Batch
from bespoke.rules.noise import noise
from bespoke_plugins.targets.executorch.forward_only import write_forward_only
from tests.bundles import made_once
from tests.models import tiny_model
from tests.native.conftest import native_build  # noqa: F401  (a fixture)

LENGTH, ROWS, STEPS, SEED, RATE = 12, 2, 6, 7, 1e-3
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}

pytestmark = pytest.mark.xdist_group("forward_only")


def build(folder: Path, blocks: int = 2, **options: object) -> Path:
    model = tiny_model("llama", folder / "model", num_hidden_layers=blocks, **SIZES)
    training = Training(sequence_lengths=(LENGTH,), batch_size=ROWS, steps=STEPS, seed=1)
    methods = {"prge": {"queries": 2} | options}
    lora = Lora(rank=3, alpha=6.0, train="B")
    return Personalizer(model, methods, "torch", context=32, lora=lora, training=training, data=None).build(folder / "bundle")


@pytest.fixture(scope="module")
def trailing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "trailing", lambda folder: build(folder, dual_forwarding=True)) / "bundle"


def rows() -> np.ndarray:
    return np.random.default_rng(0).integers(3, 60, (STEPS * ROWS, LENGTH + 1))


def walked(bundle: Bundle) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of each step, and the adapter, by the plan."""
    machine = Machine(bundle, bundle.method())
    machine.buffers.fill(bundle.initial_adapter())
    losses = []
    for step in range(1, STEPS + 1):
        outcome = machine.train_step([batch(step)], learning_rate=RATE, step=step, seed=SEED)
        machine.buffers.flip()
        losses.append(float(outcome.metrics["loss"]))
    return losses, {name: piece.copy() for name, piece in machine.adapter().items()}


def batch(step: int) -> Batch:
    tokens = rows()[(step - 1) * ROWS : step * ROWS]
    return padded(tokens, np.ones_like(tokens), {}, ROWS, LENGTH)


@pytest.mark.slow  # exporting takes most of a minute
@pytest.mark.parametrize(("blocks", "queries", "partitioners"), [(1, 1, []), (2, 2, None)])
def test_an_app_in_c_plus_plus_trains_by_forward_alone(
    blocks: int, queries: int, partitioners: list[object] | None, native_build: Path, tmp_path: Path,  # noqa: F811
) -> None:
    with open_bundle(build(tmp_path, blocks, queries=queries, dual_forwarding=True)) as bundle:
        step = ForwardOnly(bundle)
        program = write_forward_only(tmp_path / "step.pte", step.methods(), DECOMPOSITIONS, partitioners)
        losses, adapter = walked(bundle)
        initial = bundle.initial_adapter()
    rows().astype("<i8").tofile(tmp_path / "rows.bin")
    done = subprocess.run(
        [native_build / "example_forward_only", program, tmp_path / "rows.bin", str(STEPS), str(RATE), tmp_path / "b.bin"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step ")]
    assert said == pytest.approx(losses, rel=1e-5)
    found = np.fromfile(tmp_path / "b.bin", "<f4")
    wanted = np.concatenate([adapter[name].reshape(-1) for name in step.pieces])
    moved = np.abs(wanted - np.concatenate([initial[name].reshape(-1) for name in step.pieces])).max()
    assert np.abs(found - wanted).max() <= 1e-6 < moved / 1000


@pytest.mark.slow
def test_noise_that_is_given_is_that_of_the_counter(trailing: Path) -> None:
    with open_bundle(trailing) as bundle:
        by_counter, given = ForwardOnly(bundle), ForwardOnly(bundle, noise="input")
    first = batch(1)
    operands = [torch.from_numpy(array) for array in (first.tokens, first.targets, first.mask)]
    operands += [torch.zeros(2), torch.zeros(1), torch.zeros(1)]
    z = torch.from_numpy(np.stack([drawn(given, query) for query in (0, 1)]))
    with torch.no_grad():
        loss, g = by_counter(*operands, torch.tensor([SEED]), torch.tensor([1]))
        same_loss, same_g = given(*operands, z)
        torch.testing.assert_close(same_loss, loss, rtol=1e-6, atol=0)
        torch.testing.assert_close(same_g, g, rtol=0, atol=2e-4)  # 2e-6 / epsilon
        for one, other in zip(by_counter.finished(g, torch.ones(1)), given.finished(g, torch.ones(1)), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def drawn(step: ForwardOnly, query: int) -> np.ndarray:
    parts = []
    for name in step.pieces:
        group, piece = name.split(".", 1)
        block, shapes = step.model.blocks.index(group), step.model.adapter_shapes(group)
        z = noise(shapes[piece], seed=SEED, step=1, query=query, block=block, tensor=list(shapes).index(piece))
        parts.append(z.reshape(-1))
    return np.concatenate(parts)


@pytest.mark.parametrize(("distribution", "off"), [("normal", 2e-4), ("rademacher", 0.0)])
def test_noise_in_a_graph_is_that_of_the_rule(distribution: str, off: float) -> None:
    seed, step, query, block, tensor = 2**40 + 77, 9, 1, 3, 2
    wanted = noise((40_000,), seed=seed, step=step, query=query, block=block, tensor=tensor, distribution=distribution)  # type: ignore[arg-type]
    first, second = torch.arange(10_000, dtype=torch.int32), torch.full((10_000,), block << 16 | tensor, dtype=torch.int32)
    found = noise_in_graph(first, second, query, torch.tensor([seed]), torch.tensor([step]), distribution).numpy()  # type: ignore[arg-type]
    assert np.abs(found - wanted).max() <= off
    assert np.median(np.abs(found - wanted)) <= 1e-7


def test_a_step_that_makes_its_own_update_is_refused(tmp_path: Path) -> None:
    with open_bundle(build(tmp_path)) as bundle, pytest.raises(ConfigError, match="a step that makes its own update") as caught:
        ForwardOnly(bundle)
    assert "dual_forwarding" in caught.value.next_step
