# SPDX-License-Identifier: Apache-2.0
"""The kernels in a process of their own (bindings/native/tests/kernels_lab.cpp), on this processor or on an emulated one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tests.conftest import REPOSITORY
from tests.native.lab_process import end

NATIVE = REPOSITORY / "bindings" / "native"
SETS = ("baseline", "AVX2", "AVX-512", "NEON", "AMX", "NEON dotprod", "NEON i8mm", "AVX-512 VNNI")
OPERATIONS = (
    "sets",
    "linear_int4",
    "linear_int4_transposed",
    "embedding_int4",
    "head_chunk_int4",
    "head_chunk_gradient_int4",
    "measure",
    "elementwise",
    "attention",
    "loop",
    "together",
    "linear_int4_rounded",
)
# kernels::Loop
LOOPS = ("copy", "add", "subtract", "multiply", "divide", "sigmoid", "tanh", "rsqrt", "matmul")


@dataclass(frozen=True)
class Packed:
    """An int4 weight as a kernel takes it: codes [out, 16 * groups], scales [out, groups], and which columns are used."""

    codes: np.ndarray
    scales: np.ndarray
    first: int
    columns: int


@dataclass(frozen=True)
class Adapter:
    """What is added to a product: factor * h b [rows, ...], or h b^T with `transposed`."""

    h: np.ndarray
    b: np.ndarray
    transposed: bool
    factor: float


@dataclass(frozen=True)
class Answer:
    """What a kernel gave, the workspace it was given, and the seconds of its fastest run."""

    results: tuple[np.ndarray, ...]
    workspace_bytes: int
    seconds: float


class Lab:
    """Calls of one process. EOFError where it dies: it says why on stderr."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        *flags, best = self._ask([0] * 12, []).read(np.int64, len(SETS) + 1)
        self.sets = tuple(name for name, flag in zip(SETS, flags, strict=True) if flag)
        self.best = SETS[int(best)]

    def product(self, name: str, x: np.ndarray, w: Packed, adapter: Adapter | None = None, **how: Any) -> Answer:
        """`linear_int4`, `linear_int4_rounded` (x in 16 bits) or `linear_int4_transposed` of x [rows, ...]."""
        arrays = [x.astype(np.float32)]
        if adapter is not None:
            arrays += [adapter.h.astype(np.float32), adapter.b.astype(np.float32)]
            how |= {
                "in_place": adapter.transposed,
                "start": int(np.float32(adapter.factor).view(np.uint32)),
                "rank": adapter.h.shape[1],
            }
        answer = self._call(name, w, x.shape[0], arrays, **how)
        width = w.columns if name == "linear_int4_transposed" else w.codes.shape[0]
        return answer.finish((x.shape[0], width))

    def together(
        self,
        x: np.ndarray,
        weights: Sequence[Packed],
        adapters: Sequence[Adapter] = (),
        *,
        instructions: str,
        threads: int = 1,
    ) -> list[np.ndarray]:
        """`linear_int4` of x [rows, ...] by several weights. Adapters of one rank, transposed, with a factor of 0.25."""
        rows, groups = x.shape[0], weights[0].scales.shape[1]
        rank = adapters[0].h.shape[1] if adapters else 0
        how = [OPERATIONS.index("together"), SETS.index(instructions), threads, rows, len(weights), groups, 0]
        request = [*how, weights[0].columns, 0, 0, 1, rank]
        arrays = [x.astype(np.float32)]
        for number, w in enumerate(weights):
            arrays += [np.array([w.codes.shape[0]], np.int64), w.codes, w.scales]
            of = adapters[number : number + 1]
            arrays += [array.astype(np.float32) for adapter in of for array in (adapter.h, adapter.b)]
        reply = self._ask(request, arrays)
        return [reply.read(np.float32, rows * w.codes.shape[0]).reshape(rows, -1) for w in weights]

    def embedding(self, tokens: np.ndarray, w: Packed, **how: Any) -> Answer:
        answer = self._call("embedding_int4", w, tokens.shape[0], [tokens.astype(np.int64)], **how)
        return answer.finish((tokens.shape[0], w.columns))

    def head(
        self, h: np.ndarray, w: Packed, targets: np.ndarray, start: int, state: Sequence[np.ndarray], **how: Any
    ) -> Answer:
        """`state`: m, l, label, best, and acc for a gradient."""
        name = "head_chunk_gradient_int4" if len(state) == 5 else "head_chunk_int4"
        answer = self._call(name, w, h.shape[0], [h, targets, *state], start=start, **how)
        rows = (h.shape[0],)
        return answer.finish(rows, rows, rows, (rows, np.int64), *([h.shape] if len(state) == 5 else []))

    def elementwise(
        self,
        steps: Sequence[Sequence[int]],
        inputs: Sequence[np.ndarray],
        outputs: int,
        *,
        instructions: str,
        threads: int = 1,
    ) -> np.ndarray:
        """[outputs, count] of steps (operation, to, a, b, bits of a constant)."""
        count = inputs[0].size
        how = [
            OPERATIONS.index("elementwise"),
            SETS.index(instructions),
            threads,
            count,
            len(inputs),
            outputs,
            len(steps),
        ]
        request = [*how, *[0] * (12 - len(how))]
        return (
            self._ask(request, [np.array(steps, np.int64), *inputs])
            .read(np.float32, outputs * count)
            .reshape(outputs, count)
        )

    def loop(
        self,
        operation: int,
        dims: Sequence[int],
        operands: Sequence[tuple[int, Sequence[int]]],
        count: int,
        a: np.ndarray,
        b: np.ndarray,
        *,
        instructions: str,
    ) -> np.ndarray:
        """The result [count] of a strided loop, nan where nothing is written. Operands: result, a and b: first element, strides."""
        how = [OPERATIONS.index("loop"), SETS.index(instructions), 1, count, a.size, b.size, operation]
        fields = [*dims, *(field for first, strides in operands for field in (first, *strides))]
        request = [*how, *[0] * (12 - len(how))]
        return self._ask(request, [np.array(fields, np.int64), a, b]).read(np.float32, count)

    def attention(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        *,
        heads: int,
        kv_heads: int,
        start: int,
        window: int,
        scale: float,
        instructions: str,
        threads: int = 1,
        times: int = 1,
    ) -> Answer:
        """q [rows, heads * d] from position `start` on, k and v [keys, kv_heads * d]."""
        bits = int(np.float32(scale).view(np.uint32))
        how = [OPERATIONS.index("attention"), SETS.index(instructions), threads]
        sizes = [q.shape[0], k.shape[0], heads, kv_heads, q.shape[1] // heads]
        return self._ask([*how, *sizes, start, window, times, bits], [q, k, v]).finish(q.shape)

    def measure(
        self, name: str, rows: int, out: int, columns: int, *, instructions: str | None = None, threads: int = 1
    ) -> float:
        """Seconds of one call on random operands; weights of one shape take turns, so that they come from memory."""
        groups, what = -(-columns // 32), OPERATIONS.index(name)
        how = [OPERATIONS.index("measure"), SETS.index(instructions or self.best), threads]
        request = [*how, rows, out, groups, 0, columns, what, 0, 1, 0]
        return float(self._ask(request, []).read(np.float64, 1)[0])

    def _call(
        self,
        name: str,
        w: Packed,
        rows: int,
        arrays: Sequence[np.ndarray],
        *,
        instructions: str,
        threads: int = 1,
        start: int = 0,
        in_place: bool = False,
        times: int = 1,
        rank: int = 0,
    ) -> _Reply:
        out, groups = w.scales.shape
        request = [
            OPERATIONS.index(name),
            SETS.index(instructions),
            threads,
            rows,
            out,
            groups,
            w.first,
            w.columns,
            start,
        ]
        return self._ask([*request, int(in_place), times, rank], [w.codes, w.scales, *arrays])

    def _ask(self, request: Sequence[int], arrays: Sequence[np.ndarray]) -> _Reply:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(np.asarray(request, np.int64).tobytes())
            for array in arrays:
                self.process.stdin.write(np.ascontiguousarray(array).tobytes())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise EOFError(f"the lab ended with {self.process.wait()}") from None
        return _Reply(self.process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)


class _Reply:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, dtype: Any, count: int) -> np.ndarray:
        assert self._process.stdout is not None
        wanted = count * np.dtype(dtype).itemsize
        data = self._process.stdout.read(wanted)
        if len(data) < wanted:
            raise EOFError(f"the lab ended with {self._process.wait()}")
        return np.frombuffer(data, dtype)

    def finish(self, *shapes: Any) -> Answer:
        """A shape, or (shape, dtype) where that is not float32, for each result."""
        (workspace,), (seconds,) = self.read(np.int64, 1), self.read(np.float64, 1)
        results = []
        for entry in shapes:
            shape, dtype = entry if isinstance(entry[0], tuple) else (entry, np.float32)
            results.append(self.read(dtype, int(np.prod(shape))).reshape(shape))
        return Answer(tuple(results), int(workspace), float(seconds))


def compile_lab(folder: Path, compiler: str = "g++", *flags: str) -> Path:
    """The lab alone, for any processor: what cmake/kernels.cmake builds for this one."""
    x86, arm = "aarch64" not in compiler, "aarch64" in compiler
    avx2 = ("-mavx2", "-mfma", "-mf16c")
    avx512 = (*avx2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
    extra = {
        "avx2": avx2,
        "avx512": avx512,
        "avx512_vnni": (*avx512, "-mavx512vnni"),
        "amx": (*avx512, "-mamx-tile", "-mamx-bf16"),
    }
    extra |= {
        "neon": ("-mtune=cortex-a55", "-fno-schedule-insns"),
        "neon_dot": ("-march=armv8.2-a+dotprod",),
        "neon_i8mm": ("-march=armv8.2-a+dotprod+i8mm",),
    }
    if x86:
        extra["features"] = extra["dispatch"] = ("-DBESPOKE_AMX",)
    of_processor = ["avx2", "avx512", "avx512_vnni", "amx"] if x86 else ["neon", "neon_dot", "neon_i8mm"] if arm else []
    sets = ["baseline", *of_processor]
    drivers = ("linear", "head", "direct", "prepared", "vector", "elementwise", "attention", "features", "dispatch")
    sources = [
        *(f"kernels/{name}" for name in drivers),
        *(f"kernels/sets/{name}" for name in sets),
        "platform/linux/processor",
        "tool/bench_threads",
    ]
    common = ["-std=c++17", "-O2", "-ffp-contract=off", f"-I{NATIVE / 'src'}", "-pthread", *flags]
    objects = []
    for source in (NATIVE / "src" / f"{name}.cpp" for name in sources):
        objects.append(folder / f"{source.stem}.o")
        subprocess.run([compiler, *common, *extra.get(source.stem, ()), "-c", source, "-o", objects[-1]], check=True)
    program = folder / "kernels_lab"
    subprocess.run([compiler, *common, NATIVE / "tests" / "kernels_lab.cpp", *objects, "-o", program], check=True)
    return program


def missing(*programs: str) -> str | None:
    """The first of these programs that this machine lacks."""
    return next((program for program in programs if shutil.which(program) is None), None)
