# SPDX-License-Identifier: Apache-2.0
"""`products = "xnnpack_qb4w"` beside our own kernels: speed, anonymous memory, size of files, and what int8 does to estimates."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.int8_error import QUERIES, Estimated, Estimates, Products
from tests.benchmarks.int8_products import LINEARS, Blocks, Program, compile_lab, take_turns
from tests.benchmarks.qwen import CACHE, model_folder
from tests.benchmarks.trained import trained_model
from tests.conftest import REPOSITORY

from bespoke import plugins

pytestmark = [pytest.mark.benchmark]

ROWS, THREADS, ROUNDS, BLOCKS = (1, 16, 64, 256), (1, 2), 15, 6
EPSILONS, BATCHES, BATCH, LENGTH = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), 6, 4, 32
KINDS: tuple[Products, ...] = ("fp32", "bf16 scales", "int8")
MB = 1e6


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return compile_lab(tmp_path_factory.mktemp("lab"))


def middle(ours: np.ndarray, theirs: np.ndarray) -> list[float]:
    """Medians of both, and of the ratios within rounds."""
    return [float(np.median(ours)), float(np.median(theirs)), float(np.median(ours / theirs))]


def test_products_of_a_block(lab: Path, tmp_path: Path) -> None:
    """Six blocks take turns, so that weights come from memory and not from a cache of the processor."""
    blocks, rows = Blocks.random(tmp_path, BLOCKS), []
    for threads in THREADS:
        for count in ROWS:
            pairs = blocks.programs(count, tmp_path / "packed")
            seconds = take_turns(lab, [program for pair in pairs for program in pair], threads, ROUNDS).seconds
            by_block = (
                seconds.reshape(ROUNDS, BLOCKS, 2, 2).mean(axis=1) * 1e3
            )  # (rounds, ours or theirs, wall or processor)
            cells = [middle(by_block[:, 0, clock], by_block[:, 1, clock]) for clock in (1, 0)]
            rows.append([threads, count, *cells[0], cells[1][2]])
            print(rows[-1], flush=True)
    write_table(
        "int8_products",
        (
            "threads",
            "rows",
            "processor ms, int4",
            "processor ms, xnnpack_qb4w",
            "times faster",
            "times faster by wall clock",
        ),
        rows,
        f"The seven products of a block of Qwen2.5-0.5B, random weights; {BLOCKS} blocks take turns, so that weights come from "
        f"memory. Medians of {ROUNDS} rounds in which both run; times faster: of the ratios within rounds. Other work ran on the "
        "machine, so processor time counts, and with 2 threads the wall clock says little.",
        machine=f"{this_machine(threads=2)}{flags_of_int8()}",
    )


def flags_of_int8() -> str:
    """What decides the speed of products of int8, in addition to what every table names."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return "".join(f", {name}" for name in ("avx_vnni", "avx512_vnni", "asimddp", "i8mm") if name in flags)


def test_memory_of_a_block(lab: Path, tmp_path: Path) -> None:
    blocks, rows = Blocks.random(tmp_path, 1), []
    for count in ROWS:
        file = tmp_path / "packed"
        file.unlink(missing_ok=True)
        ((ours, theirs),) = blocks.programs(count, file)
        ways: dict[str, Program] = {
            "int4": ours,
            "xnnpack_qb4w, packed into memory": (theirs[0], theirs[1], None),
            "xnnpack_qb4w, packed into a file": theirs,
            "xnnpack_qb4w, the file again": theirs,
        }
        for name, program in ways.items():
            found = take_turns(lab, [program], 2, 1).bytes
            size = file.stat().st_size / MB if program[2] else None
            rows.append(
                [count, name, (found["loaded"] - found["idle"]) / MB, (found["run"] - found["idle"]) / MB, size]
            )
    write_table(
        "int8_memory",
        ("rows", "products", "loaded, MB", "after a run, MB", "file of packed weights, MB"),
        rows,
        "Anonymous memory over the idle process, one block's program: results "
        f"({4 * sum(out for out, _, _ in LINEARS.values()) / 1e3:.1f} kB a row), XNNPACK's workspace or our kernels' scratch. "
        f"Codes and scales of the block take {sum(part.nbytes for part in blocks.weights[0]) / MB:.2f} MB.",
        machine=this_machine(threads=2),
    )


def test_estimates(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    models = {
        "stories260K": stories,
        "a Llama of 0.5 M parameters": trained_model("llama", tmp_path / "llama", data_folder),
    }
    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text()[:20_000]
    rows: list[Sequence[Cell]] = []
    target: Any = plugins.get("target", "executorch")
    of_a_loss = target.rounding(target.Options(products="xnnpack_qb4w"))
    for name, folder in models.items():
        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[: BATCHES * BATCH * LENGTH]
        for trained in (False, True):
            model = Estimated(folder, torch.tensor(ids).view(BATCHES, BATCH, LENGTH), trained, of_a_loss)
            for epsilon in EPSILONS:
                found = model.estimates(epsilon, KINDS)
                exact = found["fp32"]
                for kind in KINDS[1:]:
                    one = found[kind]
                    g, wanted = one.two_sided, exact.two_sided
                    rows.append(
                        [
                            name,
                            "trained" if trained else "new",
                            kind,
                            f"{epsilon:g}",
                            f"{np.corrcoef(g, wanted)[0, 1]:.4f}",
                            f"{np.mean(np.sign(g) == np.sign(wanted)):.0%}",
                            error(g, wanted),
                            float(np.max(np.abs(one.losses / exact.losses - 1))),
                            change(one, exact, epsilon),
                            f"{np.corrcoef(one.one_sided, exact.one_sided)[0, 1]:.4f}",
                            error(one.one_sided, exact.one_sided),
                            f"{np.corrcoef(one.curvature, exact.curvature)[0, 1]:.4f}",
                            error(one.curvature, exact.curvature),
                        ]
                    )
                    print(rows[-1], flush=True)
    write_table(
        "int8_error",
        (
            "model",
            "adapter",
            "what is rounded",
            "epsilon",
            "correlation of g",
            "same sign",
            "error of g, of its size",
            "of a loss",
            "of a difference, of a loss",
            "fzoo: correlation of g",
            "error, of its size",
            "hizoo: correlation of c",
            "error, of its size",
        ),
        rows,
        f"g = (L(theta + eps z) - L(theta - eps z)) / (2 eps), {BATCHES * QUERIES} normal draws of z at {BATCHES} batches, rank 4, "
        f"{BATCH} rows of {LENGTH} tokens of Shakespeare: against fp32 with the same int4 weights. bf16 scales: of the weights "
        "alone; int8: activations too, by XNNPACK's formulas. A new adapter has B = 0. Error: root of the mean square. Of a loss: "
        "the largest relative error; of a difference: the largest error of L(theta + eps z) - L(theta - eps z), as a share of the "
        f"loss. fzoo: (L(theta + eps u) - L(theta)) / (eps sigma), u Rademacher, sigma of the {QUERIES} draws at a batch "
        f"and at least {of_a_loss:g} of a loss. hizoo: "
        "c = |L(theta + eps z) + L(theta - eps z) - 2 L(theta)| / (2 eps^2); its g is that of the first columns while its h is 1.",
        machine=this_machine(),
    )


def error(one: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sqrt(np.mean((one - exact) ** 2) / np.mean(exact**2)))


def change(one: Estimates, exact: Estimates, epsilon: float) -> float:
    """By how much a difference of two losses is off, as a share of a loss."""
    return float(np.max(2 * epsilon * np.abs(one.two_sided - exact.two_sided) / exact.losses))


CORE = """
import json, os, sys, time
from pathlib import Path
from bespoke import PersonalModel

def now():
    \"\"\"Processor seconds of the core, which is a child of this process, and wall seconds.\"\"\"
    used = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK"), time.perf_counter()

def between(marks):
    return [[b - a for a, b in zip(one, other)] for one, other in zip(marks, marks[1:])]

bundle, state, steps, tokens, prompt = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
with PersonalModel.open(bundle, state=state, engine="executorch") as model:
    if not len(model.examples):
        model.examples.add({"tokens": [1 + i % 1000 for i in range(128)]}, use="train")
    marks = []
    tell = lambda told: marks.append(now()) if told.phase == "step" else None
    report = model.train(run_steps=steps, method="mezo", on_progress=tell)
    stepped = between(marks)[1:]  # the first packs weights, or reads them
    list(model.generate_ids([1 + i for i in range(8)], max_tokens=2))
    marks = [now()]
    for _ in model.generate_ids([2 + i for i in range(prompt)], max_tokens=tokens):
        marks.append(now())
    read, *decoded = between(marks)
    print(json.dumps({
        "peak": report.memory.peak_bytes, "estimate": report.memory.estimate_bytes,
        **{f"{name} {clock}": value for at, clock in enumerate(("processor", "wall")) for name, value in {
            "step": min(one[at] for one in stepped), "prompt": read[at] / prompt,
            "token": sum(one[at] for one in decoded) / len(decoded),
        }.items()},
    }))
"""
STEPS, TOKENS, PROMPT, CORE_ROUNDS = 4, 25, 256, 3
WORK = {"step": 1, "prompt": 1e3, "token": 1e3}  # in seconds, and in milliseconds


def test_a_whole_model_on_the_core(tmp_path: Path) -> None:
    from bespoke import Personalizer, Training

    targets: dict[str, Any] = {"int4": "executorch", "xnnpack_qb4w": {"executorch": {"products": "xnnpack_qb4w"}}}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in targets}
    sizes, packed = {}, {}
    for name, target in targets.items():
        folder = CACHE / "bundles" / f"products-{name}"
        if not folder.is_dir():  # kept: to build both takes minutes
            training = Training(sequence_lengths=(128,))
            methods = {"mezo": {"epsilon": 1e-2}}
            Personalizer(model_folder(), methods, target, training=training, context=512, data=None).build(folder)
        sizes[name] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MB
    for _ in range(CORE_ROUNDS):
        for name in targets:
            state = CACHE / "states" / f"products-{name}"
            if not measured[name]:
                shutil.rmtree(state, ignore_errors=True)
            place = CACHE / "bundles" / f"products-{name}"
            command = [sys.executable, "-c", CORE, place, state, *map(str, (STEPS, TOKENS, PROMPT))]
            done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
            assert done.returncode == 0, done.stderr[-3000:]
            measured[name].append(json.loads(done.stdout))
            packed[name] = sum(path.stat().st_size for path in (state / "packed").rglob("*.packed")) / MB or None
            print(name, measured[name][-1], flush=True)
    ours, theirs = measured.values()
    gains = [
        statistics.median(a[f"{what} processor"] / b[f"{what} processor"] for a, b in zip(ours, theirs, strict=True))
        for what in WORK
    ]
    rows: list[Sequence[Cell]] = [
        [
            name,
            *(
                unit * statistics.median(one[f"{what} processor"] for one in measured[name])
                for what, unit in WORK.items()
            ),
            *(max(one[what] for one in measured[name]) / MB for what in ("peak", "estimate")),
            sizes[name],
            packed[name],
        ]
        for name in targets
    ]
    write_table(
        "int8_core",
        (
            "products",
            "processor s a step of mezo",
            "processor ms a token of a prompt",
            "processor ms a token of an answer",
            "peak memory of training, MB",
            "estimate, MB",
            "bundle, MB",
            "packed weights, MB",
        ),
        [*rows, ["times faster", *gains, None, None, None, None]],
        f"Qwen2.5-0.5B, random weights, on the device core: 128 tokens a step, a prompt of {PROMPT} tokens. Medians of "
        f"{CORE_ROUNDS} rounds in which both run, of a step the least of {STEPS - 2}; times faster: of the ratios within rounds. "
        "Other work ran on the machine, so processor time counts and not the wall clock.",
        machine=f"{this_machine(threads=2)}{flags_of_int8()}",
    )
