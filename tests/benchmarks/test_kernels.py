# SPDX-License-Identifier: Apache-2.0
"""Speed of the native kernels and of torch's dense fp32 products, taking turns, on the linears of one block of Qwen2.5-0.5B and
on its head. Weights take turns as well, so that both sides read them from memory, as in a model of many blocks."""

from __future__ import annotations

import statistics
import time

import pytest
import torch
from tests.benchmarks.figures import Cell, write_table
from tests.native.kernels_lab import Lab, compile_lab, missing

SHAPES = [(896, 896), (128, 896), (128, 896), (896, 896), (4864, 896), (4864, 896), (896, 4864)]  # [out, in]
HEAD = (4096, 896)  # rows of the head in a chunk
PASSES = ("linear_int4", "linear_int4", "linear_int4_transposed")  # forward, recomputed, and the gradient
SIDE, REPEATS, COPIES = 2048, 7, 4


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    absent = missing("g++")
    if absent:
        pytest.skip(f"{absent} is not installed")
    return Lab([compile_lab(tmp_path_factory.mktemp("kernels"), "g++", "-O3")])


def dense_pass(
    rows: int, dense: list[torch.Tensor], results: dict[int, torch.Tensor], inputs: dict[int, torch.Tensor]
) -> float:
    """Seconds of the same products with torch."""
    begin = time.perf_counter()
    for name in PASSES:
        for w in dense:
            out, width = w.shape
            if name == "linear_int4":
                torch.mm(inputs[width], w.t(), out=results[out])
            else:
                torch.mm(inputs[out], w, out=results[width])
    return time.perf_counter() - begin


def matmul_rate() -> float:
    a, b, c = (torch.rand(SIDE, SIDE) for _ in range(3))
    begin = time.perf_counter()
    torch.mm(a, b, out=c)
    return 2 * SIDE**3 / (time.perf_counter() - begin) / 1e9


@pytest.mark.benchmark
def test_int4_products_compared_with_dense_ones(lab: Lab) -> None:
    rows: list[list[Cell]] = []
    sets = [name for name in lab.sets if name != "baseline"]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for length in (32, 64, 128, 256, 512):
                rows.append(measured(lab, sets, length, threads))
                print(rows[-1], flush=True)
    finally:
        torch.set_num_threads(before)
    write_table(
        "kernels",
        ("threads", "T", *(f"int4, {name}" for name in sets), "torch fp32", f"torch {SIDE}^3", "head chunk"),
        rows,
        "GFLOP/s. The seven linears of a block of Qwen2.5-0.5B: forward, recomputed forward and gradient of the input, T rows; a "
        f"square product of torch; a chunk of {HEAD[0]} rows of the head with gradient, on {lab.best}. Medians of {REPEATS} runs "
        "that take turns.",
    )


def measured(lab: Lab, sets: list[str], length: int, threads: int) -> list[Cell]:
    work = len(PASSES) * sum(2 * length * out * width for out, width in SHAPES) / 1e9
    sides = {size for shape in SHAPES for size in shape}
    blocks = [[torch.randn(*shape) for shape in SHAPES] for _ in range(COPIES)]
    inputs = {size: torch.randn(length, size) for size in sides}
    results = {size: torch.empty(length, size) for size in sides}
    rates: dict[str, list[float]] = {}
    for repeat in range(REPEATS):
        for name in sets:
            seconds = sum(
                lab.measure(operator, length, *shape, instructions=name, threads=threads)
                for operator in PASSES
                for shape in SHAPES
            )
            rates.setdefault(name, []).append(work / seconds)
        rates.setdefault("torch", []).append(work / dense_pass(length, blocks[repeat % COPIES], results, inputs))
        rates.setdefault("square", []).append(matmul_rate())
        seconds = lab.measure("head_chunk_gradient_int4", length, *HEAD, threads=threads)
        rates.setdefault("head", []).append(4 * length * HEAD[0] * HEAD[1] / seconds / 1e9)
    return [threads, length, *(round(statistics.median(rates[name])) for name in (*sets, "torch", "square", "head"))]
