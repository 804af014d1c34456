# SPDX-License-Identifier: Apache-2.0
"""Prediction of how fast the Arm kernels are, by llvm-mca, for docs/explanation/kernels.md. Nothing is timed.

    apt-get install clang-22 llvm-22 g++-aarch64-linux-gnu qemu-user-static cmake
    python tools/predict_kernels.py            writes the table
    python tools/predict_kernels.py --check    compares the page with a new table instead

Each compiler compiles the kernels as CMake does it. An emulator runs products, and its log says how often each block of
instructions ran (predicted_blocks.py). llvm-mca says how many cycles a block takes. The exit code is 1 where a demand is not met,
the stack is used in a loop that multiplies, or the page differs; and 2 where a program is missing, or is not the page's version.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from predicted_blocks import COMPILERS, MULTIPLIES, Product, Program, Runs, missing_programs, simulated_cycles, version

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "kernels.md"
BLOCK = re.compile(r"(?<=<!-- predicted:kernels -->\n).*?(?=^<!-- /predicted:kernels -->)", re.MULTILINE | re.DOTALL)
POINTS, SHARE = 2, 0.05  # that numbers of the page may be off, percentages and others: libraries and links differ
WIDTH = 512  # of the weights, both ways: below every model's, so rows are cut for fewer columns


class Core(NamedTuple):
    """A core, LLVM's model of it, and how many FMLAs of 128 bits it begins in a cycle, by Arm's optimization guides."""

    name: str
    model: str
    pipes: int
    i8mm: bool


CORES = (
    Core("Cortex-A55", "cortex-a55", 1, i8mm=False),
    Core("Cortex-A510", "cortex-a510", 2, i8mm=True),
    # For the A76, LLVM takes the A57's model. The N1 is the A76 for servers.
    Core("Cortex-A76", "neoverse-n1", 2, i8mm=False),
    Core("Cortex-A710", "cortex-a710", 2, i8mm=True),
    Core("Cortex-X2", "cortex-x2", 4, i8mm=True),
    Core("Cortex-X4", "cortex-x4", 4, i8mm=True),
)

FORWARD, FORWARD_64 = Product("Neon", "x W^T", 256), Product("Neon", "x W^T", 64)
TRANSPOSED, TRANSPOSED_64 = Product("Neon", "g W", 256), Product("Neon", "g W", 64)
I8MM, ROUNDED = Product("NeonI8mm", "x W^T", 256), Product("NeonI8mm", "x W^T in 16 bits", 256)
VECTOR, DECODED_ROW = Product("NeonDot", "x W^T", 1), Product("Neon", "x W^T", 1)
PRODUCTS = (FORWARD, FORWARD_64, TRANSPOSED, TRANSPOSED_64, I8MM, ROUNDED, VECTOR, DECODED_ROW)
AIM, AIMS_OF_SMALL = 0.90, {"Cortex-A55": 0.80, "Cortex-A510": 0.70}  # shares of the FMA peak at T = 256
AIM_OF_I8MM, LARGE_WITH_I8MM = 1.3, ("Cortex-A710", "Cortex-X4")
AIM_OF_ROWS = 4  # times as fast as decoding


class Row(NamedTuple):
    """Shares of the FMA peak; for one row, weights a cycle, and how many times faster than by decoding."""

    core: str
    compiler: str
    forward: float
    forward_64: float
    transposed: float
    transposed_64: float
    i8mm: float | None
    rounded: float | None
    weights: float
    times: float

    def cells(self) -> list[str]:
        shares = [f"{100 * share:.0f}%" for share in self[2:6]]
        i8mm = ["" if share is None else f"{share:.2f}" for share in (self.i8mm, self.rounded)]
        return [self.core, self.compiler, *shares, *i8mm, f"{self.weights:.1f}", f"{self.times:.1f}"]


HEADER = [
    "core",
    "compiler",
    "x W^T, 256",
    "x W^T, 64",
    "g W, 256",
    "g W, 64",
    "i8mm, 256",
    "16 bits",
    "weights a cycle",
    "times",
]


def predict(runs: dict[Product, Runs], compiler: str, core: Core) -> Row:
    some = {product: run for product, run in runs.items() if core.i8mm or product.instructions != I8MM.instructions}
    each = simulated_cycles(sorted(set().union(*(run.times for run in some.values()))), core.model)
    # LLVM's model of the A55 begins two FMLAs of 128 bits in a cycle. The core has two pipelines of 64 bits for them.
    each = {block: max(took, sum(i.startswith("fmla") for i in block) / core.pipes) for block, took in each.items()}
    cycles = {product: sum(n * each[block] for block, n in run.times.items()) for product, run in some.items()}
    share = {product: product.rows * WIDTH**2 / (4 * core.pipes * took) for product, took in cycles.items()}
    weights, times = WIDTH**2 / cycles[VECTOR], cycles[DECODED_ROW] / cycles[VECTOR]
    forward, transposed = (share[FORWARD], share[FORWARD_64]), (share[TRANSPOSED], share[TRANSPOSED_64])
    return Row(core.name, compiler, *forward, *transposed, share.get(I8MM), share.get(ROUNDED), weights, times)


def missed(row: Row) -> list[str]:
    """The columns in which a row is short of its aim."""
    plain = AIMS_OF_SMALL.get(row.core, AIM)
    i8mm = AIM_OF_I8MM if row.core in LARGE_WITH_I8MM else 0
    aims = {
        "x W^T": (row.forward, plain),
        "g W": (row.transposed, plain),
        "i8mm": (row.i8mm or 0, i8mm),
        "times": (row.times, AIM_OF_ROWS),
    }
    return [name for name, (value, least) in aims.items() if value < least]


def spilled(runs: dict[Product, Runs], compiler: str) -> Iterator[str]:
    for product, run in runs.items():
        for instruction in run.spills(MULTIPLIES[product.instructions]):
            yield f"{compiler}, {product}: '{instruction}' in a loop that multiplies, expected no use of the stack there"


def source() -> str:
    """The last line of the table: where it comes from."""
    compilers = f"GCC {version('aarch64-linux-gnu-g++')} and clang {version('clang++-22')}"
    return f"Predicted by llvm-mca {version('llvm-mca-22')} of what {compilers} compile for arm64."


def table(rows: list[Row]) -> str:
    """What belongs between the marks of the page."""
    lines = [HEADER, ["---", "---", *["---:"] * 8], *(row.cells() for row in rows)]
    cells = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"""{cells}

Shares of the FMA peak of one core: products of floats at T = 256 and 64, and of whole numbers with i8mm, exact and rounded to \
16 bits. At T = 1 with dotprod: weights a cycle, and how many times as fast as decoding them. W is {WIDTH} x {WIDTH}. The A76 is \
taken for a Neoverse N1.

These are upper bounds: caches, TLB, heat and wrongly predicted branches are not modelled, and nothing was timed on an Arm \
processor.

{source()}
"""


def differences(old: str, new: str) -> Iterator[str]:
    """Cells that are further apart than predictions on two machines are."""
    old_lines, new_lines = ([line for line in text.splitlines() if line.startswith("| Cortex")] for text in (old, new))
    if len(old_lines) != len(new_lines):
        yield f"{PAGE.name} has {len(old_lines)} lines of cores, expected {len(new_lines)}: run tools/predict_kernels.py"
    for before, after in zip(old_lines, new_lines, strict=False):
        for a, b in zip(before.split("|")[3:], after.split("|")[3:], strict=True):
            x, y = (float(cell.strip(" %") or 0) for cell in (a, b))
            if abs(x - y) > (POINTS if "%" in b else SHARE * y):
                yield f"{PAGE.name} says '{before}', got '{after}': run tools/predict_kernels.py"
                break


def main() -> int:
    check, absent, page = "--check" in sys.argv[1:], missing_programs(), PAGE.read_text(encoding="utf-8")
    if absent:
        print(f"predict_kernels.py needs {', '.join(absent)}; its docstring says what to install", file=sys.stderr)
        return 2
    if check and source() not in page:
        print(f"{PAGE.name} was written with other versions; here: {source()}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    problems: list[str] = []
    for compiler in COMPILERS:
        with tempfile.TemporaryDirectory() as folder:
            program = Program(compiler, WIDTH, Path(folder))
            runs = {product: program.run(product) for product in PRODUCTS}
        problems += spilled(runs, compiler)
        rows += (predict(runs, compiler, core) for core in CORES)
    for row in rows:
        problems += [f"{row}: {name} is short of its aim, see missed()" for name in missed(row)]
    new = table(rows)
    if check:
        problems += differences(page, new)
    else:
        PAGE.write_text(BLOCK.sub(lambda _: new, page), encoding="utf-8")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
