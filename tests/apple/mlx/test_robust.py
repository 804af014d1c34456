# SPDX-License-Identifier: Apache-2.0
"""The engine where addresses fall at random, and under AddressSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke import PersonalModel, plugins
from bespoke.core import find
from bespoke_plugins.targets.mlx import MlxOptions
from tests.apple.mlx.bundles import add_examples, bundle_of
from tests.apple.mlx.engine import LIBRARY, NOT_BUILT, engine_library
from tests.apple.mlx.graphs import graphs_of
from tests.native.conftest import ROOT, SOURCE
from tests.native.core_lab import Core
from tests.support.checks import record_check

pytestmark = [pytest.mark.slow, pytest.mark.skipif(engine_library() is None, reason=NOT_BUILT)]
RUNS = 200


def test_no_run_crashes_wherever_addresses_fall(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """An operand that was not copied crashed one run in nine: MLX read before the first byte of a mapping."""
    assert Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0"
    bundle = bundle_of(tmp_path_factory, "llama", "decode")
    with PersonalModel.open(bundle, tmp_path / "state", engine="mlx") as model:
        add_examples(model)
    program = find().path
    assert program is not None
    core = Core(program, bundle)
    ends = [core.train(tmp_path / "state", run_steps=1, engine="mlx").code for _ in range(RUNS)]
    assert ends == [0] * RUNS
    record_check("runs of the engine mlx at random addresses", {"runs": RUNS, "crashes": sum(end != 0 for end in ends)})


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The engine alone, with AddressSanitizer and UndefinedBehaviorSanitizer."""
    import importlib.util

    mlx = importlib.util.find_spec("mlx")
    assert mlx is not None
    assert mlx.submodule_search_locations
    package = Path(mlx.submodule_search_locations[0])
    library = tmp_path_factory.mktemp("sanitized") / LIBRARY
    folders = [f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}", "-isystem", str(package / "include")]
    flags = [
        "-std=c++20",
        "-O1",
        "-g",
        "-fPIC",
        "-shared",
        "-fsanitize=address,undefined",
        "-fno-sanitize=vptr",
        *folders,
    ]
    sources = map(str, sorted((SOURCE / "src/engines/mlx").glob("*.cpp")))
    linked = [f"-L{package / 'lib'}", "-lmlx", f"-Wl,-rpath,{package / 'lib'}"]
    subprocess.run(["g++", *flags, *sources, "-o", str(library), *linked], check=True)
    return library


def test_a_sanitizer_finds_nothing_in_a_graph_of_each_name(sanitized: Path, tmp_path: Path) -> None:
    asan = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": asan,
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        "PYTHONMALLOC": "malloc",
    }
    target = plugins.get("target", "mlx")
    programs = 0
    for form in ("decode", "fused"):
        for graph in {graph.name: graph for graph in graphs_of("mesp", "plain")}.values():
            (tmp_path / form).mkdir(exist_ok=True)
            artifact = target.lower(graph, tmp_path / form, MlxOptions(int4=form))  # type: ignore[arg-type]
            command = [sys.executable, "-m", "tests.apple.mlx.engine", str(artifact.path), str(sanitized)]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
            assert done.returncode == 0, (graph.name, done.stderr[-3000:])
            assert "Sanitizer" not in done.stderr, done.stderr[-3000:]
            programs += 1
    record_check("programs of the engine mlx under AddressSanitizer", {"programs": programs, "runs of each": 2})
