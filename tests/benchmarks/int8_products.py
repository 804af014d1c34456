# SPDX-License-Identifier: Apache-2.0
"""Products of one block of Qwen2.5-0.5B as programs, by our kernels and by XNNPACK's qb4w; and a process that runs them in turn."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.conftest import REPOSITORY
from tests.unit.targets.programs import traced

from bespoke import plugins
from bespoke.contracts import Baked
from bespoke.model.quantize import quantize
from bespoke.ops import linear_int4

HIDDEN, WIDE, KEYS = 896, 4864, 128
# -> [out, in], and which of the four activations it reads
LINEARS = {
    "q": (HIDDEN, HIDDEN, 0),
    "k": (KEYS, HIDDEN, 0),
    "v": (KEYS, HIDDEN, 0),
    "o": (HIDDEN, HIDDEN, 1),
    "gate": (WIDE, HIDDEN, 2),
    "up": (WIDE, HIDDEN, 2),
    "down": (HIDDEN, WIDE, 3),
}
PAGE = 4096

Program = tuple[Path, Path, Path | None]  # with its operands, and its file of packed weights


def block_products(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Four activations, then codes and scales of each linear."""
    weights = iter(operands[4:])
    return tuple(
        linear_int4(operands[at], next(weights), next(weights), None, width) for _, width, at in LINEARS.values()
    )


@dataclass(frozen=True)
class Blocks:
    """Programs of several blocks with weights of their own, so that these come from memory, as in a model."""

    folder: Path
    weights: list[list[np.ndarray]]

    @classmethod
    def random(cls, folder: Path, count: int) -> Blocks:
        rng = np.random.default_rng(0)
        return cls(
            folder,
            [
                [
                    part
                    for out, width, _ in LINEARS.values()
                    for part in quantize(
                        "w", rng.standard_normal((out, width), dtype=np.float32) / np.float32(width**0.5)
                    )
                ]
                for _ in range(count)
            ],
        )

    def programs(self, rows: int, cache: Path | None) -> list[tuple[Program, Program]]:
        """Our program and XNNPACK's for each block."""
        target: Any = plugins.get("target", "executorch")
        of_int8 = target.Options(products="xnnpack_qb4w")
        rng = np.random.default_rng(1)
        activations = [rng.standard_normal((rows, width), dtype=np.float32) for width in (HIDDEN, HIDDEN, HIDDEN, WIDE)]
        graph = traced(block_products, [torch.from_numpy(array) for array in (*activations, *self.weights[0])])
        ours = target.lower(graph, self.folder, target.Options()).path
        alone = self._file(f"activations-{rows}.bin", activations)
        found: list[tuple[Program, Program]] = []
        for number, weights in enumerate(self.weights):
            held = dict(zip([spec.name for spec in graph.inputs[4:]], weights, strict=True))
            theirs = target.lower(graph, self.folder, of_int8, Baked(f"{rows}-{number}", held)).path
            operands = self._file(f"operands-{rows}-{number}.bin", [*activations, *weights])
            found.append(((ours, operands, None), (theirs, alone, cache)))
        return found

    def _file(self, name: str, parts: Sequence[Any]) -> Path:
        data = [bytes(part) if isinstance(part, bytes) else part.tobytes() for part in parts]
        path = self.folder / name
        path.write_bytes(b"".join(part + bytes(-len(part) % PAGE) for part in data) if len(data) > 1 else data[0])
        return path


def compile_lab(folder: Path) -> Path:
    """tests/benchmarks/programs_lab.cpp against ExecuTorch's wheel."""
    import executorch

    (wheel,) = (Path(place) for place in executorch.__path__)
    libraries = ("executorch", "executorch_backend_xnnpack", "executorch_kernels_optimized", "executorch_threadpool")
    subprocess.run(
        [
            "g++",
            "-O2",
            "-std=c++17",
            "-DC10_USING_CUSTOM_GENERATED_MACROS",
            "-isystem",
            wheel / "include",
            "-isystem",
            wheel / "include/executorch/runtime/core/portable_type/c10",
            REPOSITORY / "tests/benchmarks/programs_lab.cpp",
            "-o",
            folder / "programs_lab",
            f"-L{wheel / 'lib'}",
            f"-Wl,-rpath,{wheel / 'lib'}",
            "-Wl,--no-as-needed",
            *(f"-l{name}" for name in libraries),
            "-ldl",
        ],
        check=True,
    )
    return folder / "programs_lab"


@dataclass(frozen=True)
class Turns:
    """`bytes`: anonymous, by when. `seconds` [rounds, programs, wall and processor]."""

    bytes: dict[str, int]
    seconds: np.ndarray


def take_turns(lab: Path, programs: Sequence[Program], threads: int, rounds: int) -> Turns:
    from bespoke.core.library import load

    arguments = [str(part or "-") for program in programs for part in program]
    command = [lab, load().path, str(threads), str(rounds), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line[:1] in "{["]
    memory = {line["when"]: line["bytes"] for line in lines if isinstance(line, dict)}
    return Turns(memory, np.array([line for line in lines if isinstance(line, list)]))
