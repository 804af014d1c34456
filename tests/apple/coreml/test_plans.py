# SPDX-License-Identifier: Apache-2.0
"""Whole plans through the specs of a bundle: the device core trains, evaluates and answers with the MIL interpreter as its engine,
and the numbers are those of torch."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from bespoke import Lora, Personalizer, Training, plugins
from bespoke.bundle.reader import open_bundle
from bespoke.cli import run
from bespoke.core import finding, library
from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, Place, Request
from bespoke.core.torch_engine import TorchEngine
from bespoke.errors import BundleError
from bespoke.reference.train import train as reference_train
from bespoke.testing import TargetEngine
from bespoke.testing.mil import read_spec
from tests.support.bundles import CORE_JOURNALED, CORE_METHODS, made_once
from tests.support.checks import few_of
from tests.support.models import tiny_model
from tests.support.reading import rows_of_split, select

pytestmark = [
    pytest.mark.apple,
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]

STEPS, NUMBERS = 3, 131
# Of the norm of a tensor. AdamW divides a gradient by its own size: where one is near 0, its rounding becomes a step.
TENSORS = 1e-4
RECORDED = "SELECT recorded FROM journal ORDER BY step"
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "qwen2": {**SIZES, "num_key_value_heads": 2},
    "gemma3_text": {**SIZES, "head_dim": 8},
}
families = pytest.mark.parametrize(
    "family", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2", "gemma3_text"))]
)


def build(family: str, folder: Path, **options: Any) -> None:
    model = tiny_model(family, folder / "model", **FAMILIES[family])
    training = Training(
        sequence_lengths=(16,), batch_size=2, steps=STEPS + 1, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
    )
    lora = Lora(rank=2, alpha=8.0)
    methods = options.pop("methods", CORE_METHODS)
    Personalizer(model, methods, {"coreml": options}, context=40, lora=lora, training=training, data=None).build(
        folder / "bundle"
    )


@pytest.fixture
def bundle(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, f"coreml-{family}", lambda folder: build(family, folder)) / "bundle"


def engine_of(bundle: Path, name: str) -> TorchEngine:
    if name == "torch":
        return TorchEngine()
    target = plugins.get("target", "coreml")
    with open_bundle(bundle) as opened:
        (record,) = [record for record in opened.manifest.targets if record.name == "coreml"]
    return TargetEngine(target, target.Options(**record.options))  # type: ignore[arg-type]


@contextmanager
def opened_core(bundle: Path, state: Path, engine: TorchEngine | str) -> Iterator[Handle]:
    """`engine`: one that no core had yet, or the name of one."""
    with open_bundle(bundle) as opened:
        place = Place(bundle, state, opened.manifest_sha256)
    engine = engine_of(bundle, engine) if isinstance(engine, str) else engine
    core = Handle(library.load(), place, engine=c.cast(c.pointer(engine.table), c.c_void_p))
    try:
        yield core
    finally:
        core.close()


def numbers(count: int, length: int, seed: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(3, NUMBERS, (count, length)).tolist()  # type: ignore[no-any-return]


def example(tokens: list[int]) -> str:
    return json.dumps({"tokens": tokens, "mask": [1] * len(tokens)})


def trained(bundle: Path, state: Path, engine: TorchEngine | str, method: str) -> dict[str, Any]:
    """Losses of a run's steps, what it recorded, and the tensors of its last slot."""
    with opened_core(bundle, state, engine) as core:
        for number, tokens in enumerate(numbers(12, 14, 5)):
            core.add_example(example(tokens), str(number), None)
        core.train(Request(method=method), 1e-9, None, None)  # begins a run of STEPS + 1: after STEPS it has a slot
        report = core.train(Request(STEPS), None, None, None)
        found = {"losses": np.array(report["losses"])}
    if method in CORE_JOURNALED:
        found["recorded"] = np.array([np.frombuffer(bytes.fromhex(row[0]), "<f4") for row in select(state, RECORDED)])
    else:
        slot = max(state.glob("slot_*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
        found |= safetensors.numpy.load_file(slot)
    return found


@families
@pytest.mark.parametrize("method", few_of(CORE_METHODS, ("mesp", "mebp", "mezo")))
def test_training_with_specs_is_training_with_torch(bundle: Path, method: str, tmp_path: Path) -> None:
    mil, torch = (trained(bundle, tmp_path / engine, engine, method) for engine in ("mil", "torch"))
    assert mil.keys() == torch.keys()
    assert len(mil["losses"]) == STEPS
    assert mil["losses"] == pytest.approx(torch["losses"], rel=1e-6)
    for name, expected in torch.items():
        off = float(np.linalg.norm(mil[name] - expected))
        if name == "recorded":  # a difference of losses, which epsilon divides
            assert off <= 1e-6 * torch["losses"].max() / CORE_METHODS[method]["epsilon"]
        else:
            assert off <= TENSORS * np.linalg.norm(expected), f"{name} by {off / np.linalg.norm(expected):.2g}"
    with open_bundle(bundle) as opened:
        rows = rows_of_split(tmp_path / "mil", "train")
        reference = reference_train(opened, user_rows=rows, method=method, seed=1, steps=STEPS)
    assert mil["losses"] == pytest.approx(reference.losses, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mesp", "mebp"])
def test_with_sgd_the_adapter_is_that_of_torch(method: str, tmp_path: Path) -> None:
    """To rounding, taken as a whole, as the losses are: nothing is divided by its own size."""
    build("llama", tmp_path, methods={method: {"update": "sgd", "learning_rate": 0.3}})
    mil, torch = (trained(tmp_path / "bundle", tmp_path / engine, engine, method) for engine in ("mil", "torch"))
    assert torch["losses"][-1] < 0.99 * torch["losses"][0]
    ours, expected = (np.concatenate([run[name].ravel() for name in torch if name != "losses"]) for run in (mil, torch))
    assert np.linalg.norm(ours - expected) <= 1e-6 * np.linalg.norm(expected)


def answered(bundle: Path, state: Path, engine: TorchEngine | str) -> tuple[float, list[int | None]]:
    """The loss of four examples, and the first tokens of an answer."""
    with opened_core(bundle, state, engine) as core:
        loss = core.evaluate("train", [example(tokens) for tokens in numbers(4, 15, 9)])["loss"]
        session = core.open_session(Generation(max_tokens=6))
        session.feed(json.dumps(numbers(1, 11, 3)[0]))
        pieces = [session.next() for _ in range(6)]
        session.close()
    return loss, [piece.token for piece in pieces]


@families
def test_evaluation_and_answers_with_specs_are_those_with_torch(bundle: Path, tmp_path: Path) -> None:
    (loss, tokens), (expected, wanted) = (answered(bundle, tmp_path / engine, engine) for engine in ("mil", "torch"))
    assert loss == pytest.approx(expected, rel=1e-6)
    assert tokens == wanted
    assert len(set(tokens)) > 1


@families
def test_inspect_says_how_tensors_cross(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(bundle), "--features", "coreml", "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    with open_bundle(bundle) as opened:
        graphs = {graph.key: graph for graph in opened.manifest.graphs}
        (target,) = opened.manifest.targets
        expected = set()
        for artifact in target.artifacts:
            graph = graphs[artifact.graph]
            spec = read_spec(bundle / artifact.file)
            for one in (*spec.inputs, *spec.outputs):
                tensor = json.loads(one.description)
                shape = " x ".join(map(str, one.type.shape))
                dtype = one.type.dtype.replace("fp", "float")
                expected.add(
                    (f"{graph.name}-{graph.key[:8]}", one.name, tensor["tensor"], shape, dtype, tensor["view"])
                )
    assert {tuple(line.values()) for line in said} == expected
    assert {line["view"] for line in said} == {"same", "bytes", "value"}


@families
def test_inspect_names_a_target_that_has_no_features(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(bundle), "--features", "torch"]) == 2
    assert "--features torch: got no such target in the bundle; expected one of coreml" in capsys.readouterr().err


@families
def test_an_artifact_that_does_not_open_here_is_an_error(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(plugins.get("target", "coreml")), "open", lambda self, path, options: None)
    says = "target 'coreml': an artifact that does not open on this machine"
    with opened_core(bundle, tmp_path, "mil") as core, pytest.raises(BundleError, match=says):
        core.evaluate("train", [example(numbers(1, 15, 9)[0])])


@pytest.mark.parametrize("precision", few_of(("fp32", "fp16"), ("fp16",)))
def test_golden_vectors_hold_with_specs(precision: str, tmp_path: Path) -> None:
    """Those of a bundle in fp16 allow for it."""
    build("llama", tmp_path, precision=precision, methods={"mezo": CORE_METHODS["mezo"]})
    with opened_core(tmp_path / "bundle", tmp_path / "state", "mil") as core:
        checks = core._computed("bespoke_verify", [])["checks"]
    assert {check["method"] for check in checks} >= {"mezo", "generation"}
    assert all(check["worst"] <= 1 for check in checks)
