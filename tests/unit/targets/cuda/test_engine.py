# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: whole plans with Triton's kernels, in its interpreter, against golden vectors and the reference interpreter.

Golden gradients are autograd's over `transformers`; the reference runs the same plan with torch's operators.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import engine_table, finding
from bespoke.errors import BudgetExceeded, ConfigError, MissingDependency
from bespoke.reference import train as reference
from bespoke.reference.train import Trained
from bespoke_plugins.targets.cuda import Cuda, CudaOptions
from bespoke_plugins.targets.cuda.engine import CudaEngine
from tests.malformed_bundles.hostile import edit
from tests.native import torch_lab
from tests.support.bundles import CORE_METHODS, made_once
from tests.support.models import tiny_model
from tests.support.reading import accepted, rows_of_split
from tests.unit.personal_model.tiny import add_numbers

STEPS = 20
METHODS = {
    **CORE_METHODS,
    "fzoo": {"learning_rate": 1e-4, "epsilon": 1e-2, "queries": 3},
    "hizoo": {"learning_rate": 1e-3, "epsilon": 1e-2, "smoothing": 1e-3},
}
TOLERANCE = 1e-4  # relative, of a tensor to its largest value
pytestmark = pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed")


@pytest.fixture(autouse=True)
def every_engine_is_destroyed() -> Iterator[None]:
    yield
    assert not engine_table._engines


def build(folder: Path, methods: object, targets: object) -> Path:
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 44, "num_attention_heads": 4}
    model = tiny_model("llama", folder / "model", **sizes)
    training = Training(sequence_lengths=(16,), steps=STEPS, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9)
    lora = Lora(rank=2, alpha=8.0)
    return Personalizer(model, methods, targets, context=32, lora=lora, training=training, data=None).build(
        folder / "bundle"
    )


@pytest.fixture(scope="session")
def all_methods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For torch first, so that the reference opens it here."""
    return made_once(tmp_path_factory, "cuda", lambda folder: build(folder, METHODS, ["torch", "cuda"])) / "bundle"


def engine() -> CudaEngine:
    return CudaEngine(tf32=False, device="cpu")


def filled(bundle: Path, state: Path) -> Path:
    with PersonalModel.open(bundle, state) as model:
        add_numbers(model, 4)
    return state


def trained_by_the_reference(bundle: Path, state: Path, method: str, steps: int) -> Trained:
    """A run in `state` with the kernels, whose losses are those of the same run by the reference, which is returned."""
    filled(bundle, state)
    with read_bundle(bundle) as opened:
        expected = reference.train(opened, user_rows=rows_of_split(state, "train"), method=method, seed=1, steps=steps)
    used = engine()
    found = torch_lab.train(bundle, state, used, method, steps)
    assert len(found["losses"]) == steps
    np.testing.assert_allclose(found["losses"], expected.losses, rtol=TOLERANCE)
    assert used._ahead.guessed > 5 * steps  # groups that were on their way when they were loaded
    return expected


@pytest.mark.slow
def test_two_steps_are_those_of_the_reference(all_methods: Path, tmp_path: Path) -> None:
    trained_by_the_reference(all_methods, tmp_path / "state", "mesp", 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_twenty_steps_and_the_adapter_are_those_of_the_reference(
    all_methods: Path, tmp_path: Path, method: str
) -> None:
    state = tmp_path / "state"
    expected = trained_by_the_reference(all_methods, state, method, STEPS)
    for name, piece in accepted(state).items():
        wanted = expected.adapter[name]
        assert np.abs(piece - wanted).max() <= TOLERANCE * np.abs(wanted).max(), name


@pytest.mark.slow
def test_gradients_and_first_steps_of_all_methods_are_the_golden_ones(all_methods: Path, tmp_path: Path) -> None:
    report = torch_lab.verify(all_methods, tmp_path / "state", engine())
    assert report["golden"]
    assert {check["method"] for check in report["checks"] if "method" in check} >= set(METHODS)


# ---- as an app meets it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def for_gpus_alone(all_methods: Path, tmp_path: Path) -> Path:
    bundle = Path(shutil.copytree(all_methods, tmp_path / "bundle"))
    edit(
        bundle, lambda document: document.update(targets=[one for one in document["targets"] if one["name"] == "cuda"])
    )
    return bundle


@pytest.mark.slow
def test_a_bundle_for_a_gpu_alone_opens_in_the_interpreter_and_the_report_says_so(
    for_gpus_alone: Path, tmp_path: Path
) -> None:
    with PersonalModel.open(for_gpus_alone, tmp_path / "state") as model:
        add_numbers(model, 4)
        example = {"tokens": [40, 41, 42], "mask": [0, 1, 1]}
        assert model.evaluate([example]).runtime == "gpu_interpreter"


@pytest.mark.slow
def test_what_the_engine_holds_of_a_device_counts_towards_the_limit(
    for_gpus_alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaEngine, "peak_bytes", lambda self: 10**9)
    with PersonalModel.open(for_gpus_alone, tmp_path / "state", memory_mb=500) as model:
        add_numbers(model, 4)
        with pytest.raises(BudgetExceeded):
            model.train(run_steps=1)


def test_of_a_gpu_all_that_torch_has_reserved_counts_and_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 123)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: asked.append("reset"))
    found = engine()
    assert found.peak_bytes() == 0  # in the interpreter it is the process's
    found._device = torch.device("cuda")
    assert found.peak_bytes() == 123
    assert asked == ["reset"]
    del engine_table._engines[found.table.context]  # no core took it


def test_without_triton_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependency) as caught:
        Cuda().engine(CudaOptions())
    assert caught.value.subject == "target 'cuda'"
    assert "without triton" in caught.value.got
    assert "triton" in caught.value.expected
    assert "Install triton" in caught.value.next_step


def test_a_change_of_mind_after_triton_was_imported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled or interpreted as they were imported, and here that is interpreted: on a GPU they would be so too."""
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(
        ConfigError, match=r"TRITON_INTERPRET: got None after Triton was imported with its interpreter"
    ) as caught:
        Cuda().engine(CudaOptions())
    assert caught.value.next_step == "Set it before anything imports Triton, or start another process"


def test_without_a_gpu_there_is_an_engine_for_the_interpreter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Cuda().engine(CudaOptions()) is not None
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Cuda().engine(CudaOptions()) is None
