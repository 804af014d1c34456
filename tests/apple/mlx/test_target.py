# SPDX-License-Identifier: Apache-2.0
"""Target `mlx` by the contract of all targets; its options; what it says where MLX is missing or of another version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bespoke import plugins
from bespoke.errors import ConfigError, MissingDependency
from bespoke.testing import check_target
from bespoke_plugins.targets.mlx import MlxOptions, vendor
from bespoke_plugins.targets.mlx.records import VERSION, read
from tests.apple.mlx.graphs import compiled, graphs_of

TOLERANCE = 1e-5


def test_programs_compute_what_was_traced() -> None:
    report = check_target(plugins.get("target", "mlx"), optimizers=["mesp"], tolerance=TOLERANCE)
    assert report.opened == report.lowered > 30
    print(f"{report.lowered} graphs, {report.error:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["decode", "fused"])
def test_programs_of_all_methods_compute_what_was_traced(form: Any) -> None:
    report = check_target(plugins.get("target", "mlx"), MlxOptions(int4=form), tolerance=TOLERANCE)
    assert report.opened == report.lowered > 60
    print(f"{form}: {report.lowered} graphs, {report.error:.1e}")


def test_the_manifest_holds_the_version() -> None:
    assert MlxOptions().model_dump()["mlx_version"] == VERSION
    with pytest.raises(ConfigError, match="mlx_version"):
        MlxOptions(mlx_version="0.32.4")  # type: ignore[arg-type]


def test_the_graphics_card_is_refused_to_the_background() -> None:
    with pytest.raises(ConfigError) as caught:
        MlxOptions(device="gpu")
    assert "iOS refuses the GPU to the background" in str(caught.value)
    assert MlxOptions(device="gpu", background=False).device == "gpu"


def test_a_program_for_the_graphics_card_differs_and_does_not_open_here(tmp_path: Path) -> None:
    mx = pytest.importorskip("mlx.core")
    graph = graphs_of("mesp", "plain")[0]
    (tmp_path / "gpu").mkdir()
    cpu = compiled(graph, tmp_path)
    gpu = compiled(graph, tmp_path / "gpu", device="gpu", background=False)
    assert (read(cpu.read_bytes()).device, read(gpu.read_bytes()).device) == ("cpu", "gpu")
    if not mx.metal.is_available():
        target = plugins.get("target", "mlx")
        assert target.open(gpu, MlxOptions(device="gpu", background=False)) is None


@pytest.fixture
def again() -> Any:
    vendor.load_mlx.cache_clear()
    yield
    vendor.load_mlx.cache_clear()


def refusal(tmp_path: Path) -> MissingDependency:
    target = plugins.get("target", "mlx")
    with pytest.raises(MissingDependency) as caught:
        target.lower(graphs_of("mesp", "plain")[0], tmp_path, MlxOptions())
    return caught.value


def test_another_version_of_mlx_is_named(again: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vendor, "version", lambda package: "0.32.4")
    error = refusal(tmp_path)
    assert (error.subject, error.got) == ("Target 'mlx'", "mlx 0.32.4")
    assert f"mlx {VERSION}" in error.expected
    assert error.next_step == "pip install 'bespoke-sdk[mlx]'"


def test_a_missing_mlx_is_named(again: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mlx", None)
    monkeypatch.setitem(sys.modules, "mlx.core", None)
    error = refusal(tmp_path)
    assert (error.subject, error.got) == ("Target 'mlx'", "no package 'mlx'")
    assert error.next_step == "pip install 'bespoke-sdk[mlx]'"


def test_listing_plugins_does_not_load_mlx() -> None:
    code = "import sys; from bespoke import plugins; plugins.installed(); print([n for n in sys.modules if n.startswith('mlx')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
