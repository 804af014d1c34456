# SPDX-License-Identifier: Apache-2.0
"""Builds of the same input give the same bytes, in any folder and process, with any number of threads and under any load.

With other instructions of the processor golden values may differ, by less than their tolerance, and nothing else may.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.format.tensors import map_tensors
from tests.support.bundles import shakespeare, stories_bundle, write_jsonl
from tests.support.checks import record_check
from tests.support.models import tiny_model

__all__ = ["stories_bundle"]

GOLDEN = "golden/golden.safetensors"
HASHES = {"manifest.json", "manifest.sha256"}  # they name the golden file's hash

# The settings of tests.support.bundles, written again: another process, another folder, another seed of Python's hashes.
BUILD = """
import sys
from bespoke import Lora, Personalizer, Training
training = Training(learning_rate=3e-3, sequence_lengths=(32,), batch_size=2, steps=20, seed=1)
Personalizer(sys.argv[1], "mesp", "torch", context=64, lora=Lora(rank=4), training=training).build(sys.argv[2])
"""
BUILD_WITH_SETTINGS = """
import json, sys
from bespoke import Budget, Personalizer, Training
model, out, given = sys.argv[1:]
settings = json.loads(given)
training, budget = Training(seed=1, **settings.pop("training")), Budget(**settings.pop("budget", {}))
Personalizer(model, training=training, budget=budget, licence="MIT", **settings).build(out)
"""
# 1024 wide inside: enough that elementwise operations are fused.
WIDE = {
    "optimizers": ["mesp", "mezo"],
    "targets": "executorch",
    "training": {"sequence_lengths": [16], "batch_size": 2},
}
THREADS = (1, 7, 2)
BUSY = "while True: sum(range(10**6))"

# What another processor would do: torch's, MKL's, oneDNN's, OpenBLAS's and numpy's own ways of doing with less.
NO_AVX512 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
NO_AVX = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX F16C FMA3 AVX2 " + NO_AVX512["NPY_DISABLE_CPU_FEATURES"],
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one block, 1024 wide inside."""
    return tiny_model("llama", tmp_path_factory.mktemp("wide") / "model", num_hidden_layers=1, intermediate_size=1024)


@pytest.fixture(scope="module")
def here(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `wide` that the tests compare others with."""
    out = tmp_path_factory.mktemp("here") / "bundle"
    build(wide, out, 0)
    return out


def build(
    model: Path, out: Path, number: int, more: Mapping[str, str] | None = None, settings: Mapping[str, Any] = WIDE
) -> dict[str, bytes]:
    """The files of a bundle that a process of its own built, with one, two or seven threads."""
    out.parent.mkdir(parents=True, exist_ok=True)
    threads = str(THREADS[number % 3])
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(number),
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }
    command = [sys.executable, "-c", BUILD_WITH_SETTINGS, str(model), str(out), json.dumps(settings)]
    subprocess.run(command, check=True, env={**environment, **(more or {})}, cwd=out.parent, capture_output=True)
    return files(out)


@pytest.mark.slow
def test_two_builds_give_the_same_bytes(stories: Path, stories_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "of another name"
    out.parent.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", BUILD, str(stories), str(out)], check=True, env=environment, cwd=out.parent)
    first, second = files(stories_bundle), files(out)
    assert first.keys() == second.keys()
    different = [name for name, content in first.items() if content != second[name]]
    assert different == []
    assert sum(map(len, first.values())) > 500_000


@pytest.mark.slow
def test_builds_for_the_device_core_give_the_same_bytes_with_other_threads_and_folders(
    wide: Path, here: Path, tmp_path: Path
) -> None:
    assert any(name.endswith(".pte") for name in files(here))
    assert different(files(here), build(wide, tmp_path / "another folder" / "another.bundle", 1)) == []


@pytest.mark.slow
def test_with_other_instructions_golden_values_alone_differ_and_by_less_than_their_tolerance(
    wide: Path, here: Path, tmp_path: Path
) -> None:
    there = build(wide, tmp_path / "there", 0, NO_AVX)
    assert set(different(files(here), there)) == {GOLDEN, *HASHES}
    assert within_tolerance(here / GOLDEN, tmp_path / "there" / GOLDEN) > 20


@pytest.mark.slow
def test_four_builds_each_of_three_bundles_under_load(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "general.jsonl", shakespeare(data_folder, 30))
    models = {
        "stories": stories,
        "gemma": tiny_model("gemma3_text", tmp_path / "gemma", intermediate_size=512, dtype="bfloat16"),
        "qwen": tiny_model("qwen2", tmp_path / "qwen", vocab_size=4000, intermediate_size=1024),
    }
    settings: dict[str, dict[str, Any]] = {
        "stories": {
            "optimizers": ["mesp", "mebp", "mezo"],
            "targets": ["executorch", "torch"],
            "data": str(data),
            "training": {"sequence_lengths": [32, 128], "batch_size": 2},
        },
        "gemma": {
            "optimizers": "mesp",
            "targets": "executorch",
            "training": {"sequence_lengths": [64], "clip_norm": 1.0},
        },
        "qwen": {
            "optimizers": ["mebp", "mezo"],
            "targets": "executorch",
            "training": {"sequence_lengths": [48]},
            "budget": {"memory_mb": 12},
        },
    }
    numbers = 0
    for name, model in models.items():
        first = tmp_path / name / "0" / "first.bundle"
        with busy(os.cpu_count() or 1):
            built = [build(model, first, 0, settings=settings[name])]
            built += [
                build(model, tmp_path / name / str(n) / f"{n}.b", n, settings=settings[name]) for n in range(1, 4)
            ]
        assert len({digest(bundle) for bundle in built}) == 1, [different(built[0], other) for other in built]
        for instructions in (NO_AVX512, NO_AVX):
            there = tmp_path / name / instructions["ATEN_CPU_CAPABILITY"]
            assert set(different(built[0], build(model, there, 0, instructions, settings[name]))) <= {GOLDEN, *HASHES}
            numbers += within_tolerance(first / GOLDEN, there / GOLDEN)
    counts = {
        "bundles": 3,
        "builds of each, all processors busy, 1, 2 and 7 threads, as many folders": 4,
        "hash each": 1,
    }
    more = {"instruction sets less": 2, "golden numbers within their tolerance there": numbers}
    record_check("Same input, same bytes", counts | more)


# ---- what is compared --------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def different(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name, content in one.items() if content != other[name]]


def digest(bundle: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in bundle.items():
        whole.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()


def within_tolerance(one: Path, other: Path) -> int:
    """Asserts that all numbers of two golden files are as near as their tolerances say; how many there are."""
    here, there = map_tensors(one), map_tensors(other)
    assert here.keys() == there.keys()
    documents = [json.loads(arrays["document"].tobytes()) for arrays in (here, there)]
    count = 0
    for path, a, b in _side_by_side(*documents, ""):
        assert abs(a["value"] - b["value"]) <= min(a["tolerance"], b["tolerance"]), path
        count += 1
    for piece in documents[0]["pieces"]:
        name = f"gradient.{piece['name']}"
        if name in here:
            apart = float(np.linalg.norm(here[name].astype(np.float64) - there[name].astype(np.float64)))
            assert apart <= piece["gradient"]["tolerance"], name
            count += 1
    return count


def _side_by_side(one: object, other: object, path: str) -> Iterator[tuple[str, dict[str, float], dict[str, float]]]:
    """Each number with a tolerance in both documents; everything else must be equal, tolerances aside."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), path
        if one.keys() == {"value", "tolerance"}:
            yield path, one, other
            return
        for name in one:
            if name != "tolerance":
                yield from _side_by_side(one[name], other[name], f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), path
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _side_by_side(a, b, f"{path}[{number}]")
    else:
        assert one == other, path


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute for nothing meanwhile; less often than the others, so that these need not twice the time."""
    running = [subprocess.Popen(["nice", sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()
