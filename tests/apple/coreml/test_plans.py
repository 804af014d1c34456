# SPDX-License-Identifier: Apache-2.0
"""Whole plans through the specs of a bundle: the device core trains, evaluates and answers with the MIL interpreter as its engine,
and the numbers are those of torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bespoke import plugins
from bespoke.bundle.reader import read_bundle
from bespoke.cli import run
from bespoke.core import finding
from bespoke.errors import BundleError
from bespoke.reference.train import train as reference_train
from bespoke_plugins.targets.coreml.mil import read_spec
from tests.apple.coreml.plans import STEPS, TENSORS, answered, build, example, numbers, opened_core, trained
from tests.support.bundles import CORE_METHODS, made_once
from tests.support.checks import few_of
from tests.support.reading import rows_of_split

pytestmark = [
    pytest.mark.apple,
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]

families = pytest.mark.parametrize(
    "family", ["llama", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen2", "gemma3_text"))]
)


@pytest.fixture
def bundle(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, f"coreml-{family}", lambda folder: build(family, folder)) / "bundle"


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
    with read_bundle(bundle) as opened:
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
    with read_bundle(bundle) as opened:
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
