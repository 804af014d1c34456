# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of the core against Python's hashlib: by the processor's instructions, in portable C, and on processors without them."""

from __future__ import annotations

import hashlib
import platform
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import SOURCE
from tests.support.checks import few_rows_of

BY = ("core", "portable", "processor")
LENGTHS = (*range(131), 191, 192, 193, 4096, 100_003)  # every place in a block of 64, and more than one piece


def ask(command: list[str | Path], questions: list[tuple[str, int, bytes]]) -> list[str]:
    """One answer a question: (who computes, bytes a piece, bytes)."""
    lines = "".join(f"{who} {piece} :{data.hex()}\n" for who, piece, data in questions)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answers = done.stdout.split()
    assert len(answers) == len(questions)
    return answers


def check(command: list[str | Path], lengths: tuple[int, ...] = LENGTHS) -> set[str]:
    """Who could compute; what they gave is what hashlib gives."""
    chance = random.Random(1)
    questions = [
        (who, chance.choice((1, 63, 64, 65, 1 << 16)), chance.randbytes(length)) for length in lengths for who in BY
    ]
    able = set()
    for (who, piece, data), answer in zip(questions, ask(command, questions), strict=True):
        if answer != "absent":
            able.add(who)
            assert answer == hashlib.sha256(data).hexdigest(), f"{who}, {len(data)} bytes in pieces of {piece}"
    return able


def has_instructions() -> bool:
    """What Linux says of this processor."""
    said = Path("/proc/cpuinfo").read_text()
    return "sha_ni" in said or " sha2" in said


def test_hashes_are_those_of_hashlib(native_build: Path) -> None:
    able = check([native_build / "tests" / "hash_lab"])
    assert able == {"core", "portable"} | ({"processor"} if has_instructions() else set())


# ---- other processors ------------------------------------------------------------------------------------------------------


def compiled(folder: Path, prefix: str) -> Path:
    for program in (f"{prefix}gcc", f"{prefix}g++"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    c, objects = SOURCE / "third_party" / "7zip" / "C", []
    for name in ("Sha256", "Sha256Opt", "CpuArch"):
        objects.append(folder / f"{name}.o")
        subprocess.run([f"{prefix}gcc", "-O1", "-c", c / f"{name}.c", "-o", objects[-1]], check=True)
    sources = [SOURCE / "tests" / "hash_lab.cpp", next((SOURCE / "src").rglob("hash.cpp"))]
    program = folder / "hash_lab"
    command = [
        f"{prefix}g++",
        "-O1",
        "-std=c++17",
        "-static",
        f"-I{SOURCE / 'src'}",
        f"-I{c}",
        *sources,
        *objects,
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    return program


@pytest.mark.parametrize(
    ("machine", "prefix", "without", "with_them"),
    few_rows_of([("x86_64", "", "Nehalem", None), ("aarch64", "aarch64-linux-gnu-", None, "max")], (0,)),
)
def test_a_processor_without_the_instructions_computes_the_same(
    machine: str, prefix: str, without: str | None, with_them: str | None, tmp_path: Path
) -> None:
    emulator = f"qemu-{machine}-static"
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed")
    if not prefix and platform.machine() != machine:
        pytest.skip(f"the compiler here is for {platform.machine()}")
    program = compiled(tmp_path, prefix)
    short = tuple(range(0, 131, 5))
    if without is not None:
        assert check([emulator, "-cpu", without, program], short) == {"core", "portable"}
    if with_them is not None:
        assert check([emulator, "-cpu", with_them, program], short) == set(BY)
