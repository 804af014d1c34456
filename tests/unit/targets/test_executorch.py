# SPDX-License-Identifier: Apache-2.0
"""Target `executorch`: the graphs of methods, their bytes, their memory, and what is not loaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bespoke import plugins
from bespoke.bundle.reader import read_bundle
from bespoke.core import find
from bespoke.errors import MissingDependency
from bespoke.ops import operator_workspace_bytes
from bespoke.testing import check_target
from tests.support.bundles import tiny_core_bundle
from tests.support.checks import few_rows_of
from tests.unit.cli.commands import bespoke
from tests.unit.targets.programs import graphs_of, kernels_of, read, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import vendor
from bespoke_plugins.targets.executorch.program import Compiled, compile_graph
from tests.unit.targets.digests import compiled_once, digest

pytestmark = pytest.mark.xdist_group("executorch")  # one process imports it and keeps what it has compiled
__all__ = ["tiny_core_bundle"]
OURS = {
    f"bespoke::{name}.out"
    for name in (
        "embedding_int4",
        "linear_int4",
        "linear_int4_transposed",
        "head_chunk_int4",
        "head_chunk_gradient_int4",
        "linear_int4_lora",
        "linear_int4_transposed_lora",
        "attention",
        "linears_int4",
        "strided",
    )
}
# In addition to our operators: scalars and tokens as floats, zeros to begin with, copies that are results, AdamW's 1 - beta^t.
SMALL = {
    "aten::_to_copy.out",
    "aten::full.out",
    "aten::clone.out",
    "aten::expm1.out",
    "executorch_prim::et_view.default",
}
PLANS = [("mesp", "plain"), ("mezo", "plain")]
MORE_PLANS = [("mebp", "normed"), ("mebp", "plain"), ("mesp", "normed"), ("mezo", "normed")]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    vendor.load_executorch()


@pytest.mark.parametrize(("method", "model"), few_rows_of([*PLANS, *MORE_PLANS], (0, 1)))
def test_only_our_operators_and_small_things_stay_outside_delegates(method: str, model: str) -> None:
    for graph in graphs_of(method, model):
        compiled = compiled_once(graph)
        kernels = kernels_of(compiled.data)
        assert kernels <= OURS | SMALL, graph.name
        if "bespoke::strided.out" not in kernels and graph.name in (
            "tile_backward",
            "mlp_inputs",
            "mlp_start",
            "mlp_end",
            "mlp_output",
            "final_norm",
        ):
            assert sum(bool(stage.nodes) for stage in compiled.stages) == 1, graph.name


@pytest.mark.skipif(find().path is None, reason="the device core, which has our operators, is not installed")
@pytest.mark.slow
@pytest.mark.parametrize("method", ["mesp", "mebp", "mezo"])
def test_programs_compute_what_was_traced(method: str) -> None:
    report = check_target(plugins.get("target", "executorch"), optimizers=[method])
    assert report.opened == report.lowered > 30
    assert report.error <= 1e-5


@pytest.mark.slow
@pytest.mark.skipif(find().path is None, reason="the device core, which has our operators, is not installed")
def test_programs_run_by_the_copy_of_the_core_that_the_process_has(tmp_path: Path) -> None:
    """A second copy would register our operators again, which ends the process."""
    installed = find().path
    assert installed is not None
    shutil.copytree(installed.parents[1], tmp_path / "core")
    code = (
        "import os; from bespoke.core.library import load; load(); del os.environ['BESPOKE_CORE']\n"
        "from bespoke_plugins.targets.executorch.run import _operators; print(_operators(), load().path)"
    )
    environment = {**os.environ, "BESPOKE_CORE": str(tmp_path / "core" / "bin" / "bespoke-core")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["True", str(tmp_path / "core" / "lib" / "libbespoke_core.so")], done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("largest", [6, pytest.param(None, id="all")])
def test_a_new_process_writes_the_same_bytes(largest: int | None, tmp_path: Path) -> None:
    """Hash seeds differ from process to process: nothing follows the order of a set."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        f"from tests.unit.targets.digests import digest; print(digest({largest}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.strip() == digest(largest)


def test_the_manifest_says_which_delegates_an_artifact_calls(tiny_core_bundle: Path) -> None:
    """By ExecuTorch's own reader; `bespoke inspect` counts them."""
    with read_bundle(tiny_core_bundle) as bundle:
        (target,) = bundle.manifest.targets
        said = {artifact.file: set(artifact.delegates) for artifact in target.artifacts}
        assert said == {file: {delegate.id for delegate in read(bundle.read(file)).delegates} for file in said}
    assert set().union(*said.values()) == {"XnnpackBackend"}
    calling = sum(bool(delegates) for delegates in said.values())
    assert f"executorch: {len(said)}, {calling} with XnnpackBackend" in bespoke("inspect", tiny_core_bundle).ok().out


def test_workspace_is_planned_memory_and_what_operators_take() -> None:
    graph = next(g for g in graphs_of("mesp", "plain") if g.name == "attention_output" and g.outputs[0].shape[0] > 1)
    compiled = compiled_once(graph)
    assert sum(read(compiled.data).non_const_buffer_sizes) == compiled.planned_bytes > 0
    assert compiled.operator_bytes == operator_workspace_bytes("linear_int4", graph.outputs[0].shape[0])
    assert compiled.workspace_bytes == compiled.planned_bytes + compiled.operator_bytes


MEASURE = """
import re, sys, torch
from executorch.extension.pybindings import _C  # and not portable_lib, which imports the compiler
_C._unsafe_reset_threadpool(1)
def anonymous():
    return int(re.search(r"RssAnon:\\s*(\\d+)", open("/proc/self/status").read())[1]) * 1024
data = open(sys.argv[1], "rb").read()
operands = tuple(torch.rand(shape) for shape in eval(sys.argv[2]))
[operand @ operand.t() for operand in operands if operand.dim() == 2][:1]
seen = [anonymous()]
module = _C._load_for_executorch_from_buffer(data)
for method in sys.argv[3:]:
    results = module.run_method(method, operands if method == "forward" else (torch.zeros(1),))
    seen.append(anonymous())
print(*(after - before for before, after in zip(seen, seen[1:])))
"""


def chain(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Linears of a width where the program's own structures (about 0.3 MB) do not count."""
    a = torch.abs(x @ w.t())
    b = torch.tanh(a) * a
    return torch.expm1(b) @ v.t() + (b @ v.t()) * 0.5


CHAIN_SHAPES = ((512, 512), (4096, 512), (512, 4096))
CHAIN_RESULTS = 2 * 512 * 512 * 4  # the Python runtime keeps them, and gives copies


def growth_of_a_process(path: Path, compiled: Compiled, *methods: str) -> list[int]:
    """Anonymous memory that is more after each of the methods."""
    path.write_bytes(compiled.data)
    command = [sys.executable, "-c", MEASURE, str(path), str(CHAIN_SHAPES), *methods]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(size) for size in done.stdout.split()]


@pytest.mark.slow
def test_memory_of_a_process_grows_by_what_was_computed(tmp_path: Path) -> None:
    compiled = compile_graph(traced(chain, [torch.empty(shape) for shape in CHAIN_SHAPES]))
    (grown,) = growth_of_a_process(tmp_path / "chain.pte", compiled, "forward")
    promised = compiled.workspace_bytes + compiled.xnnpack_bytes
    assert promised > 30e6
    assert grown == pytest.approx(promised + CHAIN_RESULTS, rel=0.15)


def test_what_is_reserved_is_what_xnnpack_takes(tmp_path: Path) -> None:
    compiled = compile_graph(traced(chain, [torch.empty(shape) for shape in CHAIN_SHAPES]))
    reserved, more = growth_of_a_process(tmp_path / "chain.pte", compiled, "reserve", "forward")
    assert compiled.xnnpack_bytes > 8e6
    assert reserved == pytest.approx(compiled.xnnpack_bytes, rel=0.05)
    assert more == pytest.approx(compiled.workspace_bytes + CHAIN_RESULTS, rel=0.15)


def test_a_missing_executorch_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if re.match(r"executorch(\.|$)", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "executorch", None)
    vendor.load_executorch.cache_clear()
    target = plugins.get("target", "executorch")
    try:
        with pytest.raises(MissingDependency, match=r"Target 'executorch'.*bespoke-sdk\[executorch\]"):
            target.lower(graphs_of("mesp", "plain")[0], tmp_path, target.Options())
    finally:
        vendor.load_executorch.cache_clear()


@pytest.mark.slow
def test_listing_plugins_does_not_load_executorch() -> None:
    code = (
        "import sys; from bespoke import plugins; plugins.installed(); "
        "print([name for name in ('executorch', 'torchao', 'flatbuffers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""
