# SPDX-License-Identifier: Apache-2.0
"""What P-RGE's loops are worth on the device core: both signs in one forward pass (inner) against two passes, and queries in one
pass (outer) at equal rows. Same kernels, same family of programs; B alone is trained, rank 8, without a memory limit.

A forward pass of R tokens is taken to cost c R + w seconds, where w is what handling the frozen weights costs whatever R is: a
straight line through the passes of the sequential plans, fixed before any pair is run. Then batching the two signs can be at most
2 (c R + w) / (2 c R + w) times as fast. Needs a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest
from tests.benchmarks.core_bundles import Bundle, Wanted, bundle
from tests.benchmarks.core_process import THREADS, fresh_state, warm
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.paced import PacedCore, paired_ratio, take_turns

MODELS = {"Qwen2.5-0.5B": "qwen", "TinyLlama-1.1B": "tinyllama"}  # and what their tables are called
LENGTHS, BATCHES = (16, 32, 64, 128), (1, 2, 4, 8)
QUERIES = {1: 16, 4: 4, 16: 1}  # and rows for each: always as many paths
QUERY_LENGTHS = {"Qwen2.5-0.5B": (32, 128), "TinyLlama-1.1B": (32,)}  # tokens of a row
BOTH = (False, True)  # two passes, one pass
OF_BOUND, LEAST, WITHIN = 0.85, 0.97, 0.05
CALIBRATING = 3  # rounds
MANY_STEPS = 1000  # which no run comes to
NO_COMMITS = {"commit_seconds": 3600.0}
HEADER = (
    "tokens of a row",
    "rows",
    "two passes, seconds a step",
    "one pass",
    "times as fast",
    "least and most",
    "bound",
    "of the bound",
    "peak, two passes, MB",
    "peak, one pass, MB",
)
QUERY_HEADER = ("tokens of a row", "queries", "rows of each", "seconds a step", "times one query's", "peak, MB")


@dataclass(frozen=True)
class Line:
    """Seconds of a forward pass over its rows; `residual`: the largest, as a share."""

    each: float
    weights: float
    residual: float

    def bound(self, rows: int) -> float:
        return 2 * (self.each * rows + self.weights) / (2 * self.each * rows + self.weights)


def prge(model: str, length: int, batch: int, *, queries: int = 1, loops: bool) -> Bundle:
    options = (("queries", queries), ("outer", queries > 1), ("inner", loops))
    return bundle(Wanted(model, "prge", length, None, options=options, batch_size=batch, factors="B"))


@pytest.mark.benchmark
@pytest.mark.parametrize("model", MODELS)
def test_both_signs_in_one_pass(model: str) -> None:
    cells = list(itertools.product(LENGTHS, BATCHES))
    made = {(*cell, loops): prge(model, *cell, loops=loops) for cell in cells for loops in BOTH}
    line = fitted([made[*cell, False] for cell in calibrating(cells)])
    print(line, flush=True)
    rows: list[list[Cell]] = []
    problems = []
    for length, batch in cells:
        seconds, peaks = paired([made[length, batch, loops] for loops in BOTH])
        gain, bound = paired_ratio(*seconds), line.bound(length * batch)
        rows.append(
            [length, batch, *map(statistics.median, seconds), gain, spread(*seconds), bound, share(gain, bound), *peaks]
        )
        print(rows[-1], flush=True)
        if gain < max(OF_BOUND * bound, LEAST):
            problems.append(f"{batch} rows of {length}: {gain:.2f} of {bound:.2f}")
    write_table(
        f"inner_loop_{MODELS[model]}",
        HEADER,
        rows,
        f"{model}, published configuration with random weights; `prge` with one query, B trained, rank 8, on {THREADS} threads, no "
        f"commits. Medians of turns; times as fast: the median of the ratios within rounds, and the least and most of them. The "
        f"bound takes a pass for {line.each * 1e3:.2f} ms a token and {line.weights * 1e3:.0f} ms for the weights, a straight line "
        f"through passes of {', '.join(str(length * batch) for length, batch in calibrating(cells))} tokens, of which none is more "
        f"than {line.residual:.0%} off; 'all': the measured gain is above the bound, through noise and the error of the fitted "
        "line.",
        machine=this_machine(THREADS),
    )
    assert not problems, "\n".join(problems)


@pytest.mark.benchmark
@pytest.mark.parametrize("model", MODELS)
def test_queries_in_one_pass_at_equal_rows(model: str) -> None:
    rows: list[list[Cell]] = []
    for length in QUERY_LENGTHS[model]:
        seconds, peaks = paired([prge(model, length, each, queries=n, loops=True) for n, each in QUERIES.items()])
        for (n, each), taken, peak in zip(QUERIES.items(), seconds, peaks, strict=True):
            rows.append([length, n, each, statistics.median(taken), paired_ratio(taken, seconds[0]), peak])
            print(rows[-1], flush=True)
    write_table(
        f"outer_loop_{MODELS[model]}",
        QUERY_HEADER,
        rows,
        f"{model}, as above, with both loops: always {max(QUERIES)} rows for each sign.",
        machine=this_machine(THREADS),
    )
    assert all(abs(float(row[4]) - 1) <= WITHIN for row in rows), rows


def spread(slower: list[float], faster: list[float]) -> str:
    """The least and the most of the ratios within rounds."""
    ratios = [one / other for one, other in zip(slower, faster, strict=True)]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def share(gain: float, bound: float) -> str:
    """A gain above the bound comes of noise and of the error of the fitted line."""
    return f"{gain / bound:.0%}" if gain < bound else "all"


def calibrating(cells: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """One cell for each number of tokens that there is, with the longest rows."""
    return [*{length * batch: (length, batch) for length, batch in sorted(cells)}.values()]


def fitted(bundles: list[Bundle]) -> Line:
    """By half of a sequential step each. Least squares of relative residuals, so that short passes count as much as long ones."""
    tokens = np.array([float(made.wanted.length * made.wanted.batch_size) for made in bundles])
    seconds = np.array([statistics.median(steps) / 2 for steps in paired(bundles, CALIBRATING)[0]])
    print(dict(zip(tokens, seconds, strict=True)), flush=True)
    terms = np.stack([tokens, np.ones_like(tokens)], axis=1) / seconds[:, None]
    (each, weights), *_ = np.linalg.lstsq(terms, np.ones_like(seconds), rcond=None)
    return Line(float(each), float(weights), float(np.max(np.abs((each * tokens + weights) / seconds - 1))))


def paired(bundles: list[Bundle], rounds: int | None = None) -> tuple[list[list[float]], list[str]]:
    """Seconds of each turn, and peaks in MB, of bundles that take turns; by default fewer of long steps."""
    (tokens, *_) = [
        dict(made.wanted.options)["queries"] * made.wanted.length * made.wanted.batch_size for made in bundles
    ]
    rounds = rounds or (9 if tokens <= 64 else 5 if tokens <= 256 else 3)
    with ExitStack() as stack:
        runners = []
        for number, made in enumerate(bundles):
            warm(made)
            state = stack.enter_context(fresh_state(made, f"paired_{number}", made.wanted.batch_size, use="train"))
            name = f"{number}: {made.wanted.name}"
            runners.append(PacedCore(name, made, state, MANY_STEPS, THREADS, settings=NO_COMMITS, cut=True))
        seconds = take_turns(runners, rounds)
    return [*seconds.values()], [f"{runner.run.report['memory']['peak_bytes'] / 1e6:.1f}" for runner in runners]
