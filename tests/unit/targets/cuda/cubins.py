# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: its kernels compiled for GPUs that are not here, and what they take of one.

`python -m tests.unit.targets.cuda.cubins KERNEL,KERNEL CAPABILITY,CAPABILITY` prints it as JSON, in a process of its own, without
TRITON_INTERPRET: Triton compiles or interprets, as it was first imported. ptxas and cuobjdump come with Triton; no GPU is asked.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Not from tests.conftest, which sets TRITON_INTERPRET.
REPOSITORY = Path(__file__).resolve().parents[4]
KERNELS = ("linear", "linear_transposed", "embedding", "head_statistics")
GPUS = {87: "sm_87", 80: "sm_80", 90: "sm_90"}  # the first is a Jetson Orin's
ORIN_SHARED_BYTES = 163 * 1024  # most shared memory of a block


@dataclass(frozen=True)
class Cubin:
    """What one kernel takes in one configuration: of a thread, registers and the stack, where spilled registers lie; of a block,
    shared memory. `aligned`: widths are multiples of 16, as those of all models of real size."""

    kernel: str
    tile: str
    product: str
    aligned: bool
    capability: int
    registers: int
    stack_bytes: int
    shared_bytes: int


def compiled(kernels: tuple[str, ...], capabilities: tuple[int, ...], folder: Path) -> list[Cubin]:
    """In a process without the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, ",".join(kernels), ",".join(map(str, capabilities))]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment | {"TRITON_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Cubin(**found) for found in json.loads(done.stdout)]


HEADER = (
    "kernel",
    "tile",
    "product",
    "widths",
    *(f"{gpu} {what}" for gpu in GPUS.values() for what in ("registers", "spilled", "on chip")),
)
NOTE = (
    "Tile: rows of x, rows of W, columns of W that a program holds. Registers and spilled bytes are a thread's, bytes on chip "
    "(shared memory) a block's; Orin (sm_87) has 166,912 of them. Widths: `in` and `out` of W. "
    "Compiled by Triton 3.7.1 and its ptxas, without a GPU."
)


def table(cubins: list[Cubin]) -> list[list[str | int | None]]:
    """A row for each configuration, with its bytes on each GPU that it was compiled for."""
    rows: dict[tuple[str, str, str, bool], dict[int, Cubin]] = {}
    for cubin in cubins:
        rows.setdefault((cubin.kernel, cubin.tile, cubin.product, cubin.aligned), {})[cubin.capability] = cubin
    found: list[list[str | int | None]] = []
    for (kernel, tile, product, aligned), by_gpu in rows.items():
        cells: list[int | None] = []
        for capability in GPUS:
            cubin = by_gpu.get(capability)
            cells += [None] * 3 if cubin is None else [cubin.registers, cubin.stack_bytes, cubin.shared_bytes]
        found.append([kernel, tile, product, "multiples of 16" if aligned else "any", *cells])
    return found


_POINTERS = {
    "x": "*fp32",
    "g": "*fp32",
    "z": "*fp32",
    "y": "*fp32",
    "dx": "*fp32",
    "acc": "*fp32",
    "keep": "*fp32",
    "codes": "*u8",
    "scales": "*fp16",
    "start": "*i64",
    "tokens": "*i64",
    "targets": "*i64",
    "m": "*fp32",
    "total": "*fp32",
    "label": "*fp32",
    "best": "*i64",
    "m_out": "*fp32",
    "total_out": "*fp32",
    "label_out": "*fp32",
    "best_out": "*i64",
}
_SIZES = ("out", "columns", "size")  # what Triton compiles apart where it is a multiple of 16


def configurations(kernel: str) -> Iterator[tuple[str, str, dict[str, Any], int]]:
    """Tile and product in words, the constants, and warps: all that the target launches."""
    from bespoke_plugins.targets.cuda import products

    if kernel == "embedding":
        yield f"1 x {32 * products.EMBEDDING_GROUPS}", "-", {"GROUPS": products.EMBEDDING_GROUPS}, 4
    elif kernel == "head_statistics":
        yield f"1 x {products.STEP}", "-", {"STEP": products.STEP}, 4
    else:
        for tiles in products.TILES[kernel]:
            sizes = {"ROWS": tiles.rows, "OUT": tiles.out, "GROUPS": tiles.groups}
            for tf32 in (False, True):
                product = "tf32" if tf32 else "bf16 parts"
                words = f"{tiles.rows} x {tiles.out} x {32 * tiles.groups}"
                if kernel == "linear":
                    yield words, product, sizes | {"TF32": tf32}, tiles.warps
                    continue
                yield words, product, sizes | {"TF32": tf32, "acc": None, "keep": None}, tiles.warps
                yield words, f"{product}, added", sizes | {"TF32": tf32}, tiles.warps


def compile_here(kernel: str, capability: int) -> Iterator[Cubin]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from bespoke_plugins.targets.cuda import kernels

    function = getattr(kernels, kernel)
    names = list(inspect.signature(function.fn).parameters)
    for tile, product, constants, warps in configurations(kernel):
        for aligned in (True, False):
            signature = {name: "constexpr" if name in constants else _POINTERS.get(name, "i32") for name in names}
            divisible = [n for n in names if signature[n].startswith("*") or n in _SIZES] if aligned else []
            attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
            places = {(names.index(name),): value for name, value in constants.items()}
            source = ASTSource(function, signature, places, attributes)
            done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
            registers, stack = _used(done.asm["cubin"])
            yield Cubin(kernel, tile, product, aligned, capability, registers, stack, done.metadata.shared)


def _used(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack of a thread, as NVIDIA's own tool reads them out of the machine code."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", said)
    return int(found[0]), int(found[1]) + int(found[2])


if __name__ == "__main__":
    wanted = [(kernel, int(number)) for number in sys.argv[2].split(",") for kernel in sys.argv[1].split(",")]
    print(json.dumps([asdict(cubin) for kernel, number in wanted for cubin in compile_here(kernel, number)]))
