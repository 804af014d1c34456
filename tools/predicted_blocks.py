# SPDX-License-Identifier: Apache-2.0
"""Blocks of instructions of the Arm kernels: how often an emulator runs each, and how many cycles it takes by llvm-mca.

A block ends with a branch, and begins where the last one led. So a loop without branches in it is a block.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

NATIVE = Path(__file__).resolve().parents[1] / "bindings" / "native"
TRIPLE = "aarch64-linux-gnu"
PROGRAMS = {  # and the package that has it
    "cmake": "cmake",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "clang++-22": "clang-22",
    "llvm-mca-22": "llvm-22",
    "llvm-objdump-22": "llvm-22",
    "qemu-aarch64-static": "qemu-user-static",
}
COMPILERS = {
    "GCC": {"C_COMPILER": "aarch64-linux-gnu-gcc", "CXX_COMPILER": "aarch64-linux-gnu-g++"},
    "clang": {
        "C_COMPILER": "clang-22",
        "C_COMPILER_TARGET": TRIPLE,
        "CXX_COMPILER": "clang++-22",
        "CXX_COMPILER_TARGET": TRIPLE,
    },
}
MULTIPLIES = {"Neon": "fmla", "NeonDot": "sdot", "NeonI8mm": "smmla"}  # by InstructionSet of kernels/int4.h
OPERATIONS = ("x W^T", "g W", "x W^T in 16 bits")  # as the driver numbers them
FEWER, MORE = 20, 60  # repetitions of a block: their difference leaves out how it starts and ends

# A product of zeros, by one thread.
DRIVER = """
#include <cstdlib>

#include "kernels/drivers.h"

using namespace bespoke::kernels;

alignas(64) static char scratch[SCRATCH_BYTES];
static uint8_t codes[WIDTH * WIDTH / 2];
static uint16_t scales[WIDTH * WIDTH / GROUP];
static float a[256 * WIDTH], c[256 * WIDTH];

int main(int, char** argument) {
  const InstructionSet sets[] = {InstructionSet::Neon, InstructionSet::NeonDot, InstructionSet::NeonI8mm};
  const Weight w = {codes, scales, WIDTH / 2, WIDTH / GROUP, WIDTH, WIDTH};
  const Table& table = *table_of(sets[std::atoi(argument[1])]);
  const int64_t operation = std::atoi(argument[2]), rows = std::atoi(argument[3]);
  const Precision precision = operation == 2 ? Precision::Rounded : Precision::Exact;
  if (operation == 1)
    linear_transposed(table, w, a, WIDTH, rows, c, WIDTH, scratch, serial);
  else
    linear(table, w, a, WIDTH, rows, c, WIDTH, scratch, serial, nullptr, precision);
}
"""

Block = tuple[str, ...]  # its instructions; where they branch to is left out
_LISTED = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
_BRANCH = re.compile(r"(b|bl|br|blr|ret|b\.\w+|cbn?z|tbn?z)\b")
_ADDRESS = re.compile(r"0x([0-9a-f]+) <[^>]*>")


class Product(NamedTuple):
    """What the emulator runs: one of OPERATIONS of so many rows."""

    instructions: str
    operation: str
    rows: int


class Runs(NamedTuple):
    """How often each block ran, and which of them are loops: they lead to their own beginning."""

    times: Counter[Block]
    loops: set[Block]

    def spills(self, multiplies: str) -> Iterator[str]:
        """Instructions that read or write the stack in loops that multiply."""
        for loop in self.loops:
            if any(instruction.startswith(multiplies) for instruction in loop):
                yield from (instruction.replace("\t", " ") for instruction in loop if "[sp" in instruction)


class Program:
    """Products of WIDTH x WIDTH weights by the kernels, compiled as CMake does it."""

    def __init__(self, compiler: str, width: int, folder: Path) -> None:
        variables = {"SYSTEM_NAME": "Linux", "SYSTEM_PROCESSOR": "aarch64"} | COMPILERS[compiler]
        options = ["-DBESPOKE_EXECUTORCH=OFF", *(f"-DCMAKE_{name}={value}" for name, value in variables.items())]
        _run("cmake", "-S", NATIVE, "-B", folder, *options)
        _run("cmake", "--build", folder, "--target", "kernels")
        (folder / "driver.cpp").write_text(DRIVER, encoding="utf-8")
        sources = [folder / "driver.cpp", NATIVE / "src" / "platform" / "linux" / "processor.cpp"]
        objects = folder.glob("CMakeFiles/kernels.dir/**/*.o")
        command = [variables["CXX_COMPILER"], *([f"--target={TRIPLE}"] if compiler == "clang" else [])]
        flags = ["-std=c++17", "-static", f"-I{NATIVE / 'src'}", f"-DWIDTH={width}L"]
        self._path = folder / "product"
        _run(*command, *flags, *sources, *objects, "-o", self._path)
        listing = _run("llvm-objdump-22", "--disassemble", "--no-show-raw-insn", self._path).splitlines()
        self._listing = {int(line[1], 16): line[2] for line in map(_LISTED.match, listing) if line}

    def run(self, product: Product) -> Runs:
        how = [list(MULTIPLIES).index(product.instructions), OPERATIONS.index(product.operation), product.rows]
        log = ["-d", "in_asm,exec,nochain", "-D", "/dev/stdout"]
        command: list[str | Path] = ["qemu-aarch64-static", "-cpu", "max", *log, self._path, *map(str, how)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
            assert emulator.stdout is not None
            found = self._blocks(emulator.stdout)
        if emulator.returncode:
            raise SystemExit(f"The product {product} ended with {emulator.returncode} in the emulator, expected 0")
        runs = Runs(Counter(), set())
        for addresses, times in found.items():
            block = tuple(_ADDRESS.sub("target", self._listing[address]) for address in addresses)
            runs.times[block] += times
            target = _ADDRESS.search(self._listing[addresses[-1]])
            if target and int(target[1], 16) == addresses[0]:
                runs.loops.add(block)
        return runs

    def _blocks(self, log: Iterable[str]) -> Counter[tuple[int, ...]]:
        """The addresses of blocks of the kernels, from a log of what the emulator translates once and then runs.

        Its own pieces of code also end with a page of memory. The next piece then belongs to the same block.
        """
        pieces: dict[int, list[int]] = {}
        piece: list[int] = []
        found: Counter[tuple[int, ...]] = Counter()
        block: tuple[int, ...] = ()
        for line in log:
            if line.startswith("IN:"):
                piece = []
            elif line.startswith("0x"):
                piece.append(int(line[: line.index(":")], 16))
                pieces[piece[0]] = piece
            elif line.startswith("Trace") and "_ZN7bespoke7kernels" in line:
                block += tuple(pieces[int(line.split("/")[1], 16)])
                if _BRANCH.match(self._listing[block[-1]]):
                    found[block] += 1
                    block = ()
        return found


def simulated_cycles(blocks: list[Block], model: str) -> dict[Block, float]:
    """The cycles of each block on a core, repeated without a pause. A call takes no longer than another branch."""
    regions = "".join("\n".join([f"// LLVM-MCA-BEGIN {i}", *b, "// LLVM-MCA-END\n"]) for i, b in enumerate(blocks))
    options = [f"-mtriple={TRIPLE}", f"-mcpu={model}", "-mattr=+i8mm,+dotprod", "-call-latency=1"]
    views = ["-json", "-instruction-info=0", "-resource-pressure=0"]
    fewer, more = (
        [region["SummaryView"]["TotalCycles"] for region in json.loads(answer)["CodeRegions"]]
        for n in (FEWER, MORE)
        for answer in [_run("llvm-mca-22", *options, *views, f"-iterations={n}", input=regions)]
    )
    return {block: (b - a) / (MORE - FEWER) for block, a, b in zip(blocks, fewer, more, strict=True)}


def missing_programs() -> list[str]:
    return [f"{program} (of {package})" for program, package in PROGRAMS.items() if shutil.which(program) is None]


def version(program: str) -> str:
    """As the program says it, its number alone."""
    found = re.search(r"\d+\.\d+\.\d+", _run(program, "--version"))
    return found[0] if found else "unknown"


def _run(*command: Any, input: str | None = None) -> str:
    done = subprocess.run(command, input=input, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}, expected 0:\n{done.stderr}")
    return done.stdout
