# SPDX-License-Identifier: Apache-2.0
"""The core's readers under libFuzzer with sanitizers, seeded with sound documents: no crash, no leak, no unsound record.

By default 60 seconds a target; BESPOKE_FUZZ_SECONDS sets another time. The coverage of the readers is printed.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.native.conftest import SOURCE
from tests.native.fuzz_corpus import TARGETS, write_corpus
from tests.support.checks import few_of

SECONDS = int(os.environ.get("BESPOKE_FUZZ_SECONDS", "60"))
# What a target reads, for the figures: other files of src/format are not its business.
FILES = {
    "manifest": (
        "json.cpp",
        "manifest.cpp",
        "manifest_check.cpp",
        "manifest_training.cpp",
        "json_schema.cpp",
        "untrusted_text.cpp",
    ),
    "plan": ("json.cpp", "plan_read.cpp", "plan_replay.cpp", "plan_verify.cpp", "json_schema.cpp"),
    "schema": ("json.cpp", "json_schema.cpp"),
    "safetensors": ("json.cpp", "safetensors.cpp"),
}


@dataclass
class Fuzzing:
    programs: Path
    corpus: Path
    words: Path
    manifest: Path


@pytest.fixture(scope="module")
def fuzzing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzing]:
    for program in ("clang++", "llvm-cov", "llvm-profdata", "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("fuzz")
    write_corpus(folder)
    build = folder / "build"
    options = [
        "-DCMAKE_CXX_COMPILER=clang++",
        "-DCMAKE_C_COMPILER=clang",
        "-DBESPOKE_FUZZ=ON",
        "-DBESPOKE_EXECUTORCH=OFF",
    ]
    for command in (
        ["cmake", "-G", "Ninja", "-S", str(SOURCE), "-B", str(build), *options],
        ["cmake", "--build", str(build), "--target", "fuzz"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    yield Fuzzing(build / "fuzz", folder, folder / "words", folder / "manifest.json")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("target", few_of(TARGETS, ("manifest",)))
def test_a_target_follows_the_readers_that_it_calls(target: str) -> None:
    """The fast tests run none of them; one that no longer compiles would be found in the next full run."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    headers = (SOURCE / "src", SOURCE / "third_party" / "json" / "single_include")
    command = [
        compiler,
        "-std=c++17",
        "-fsyntax-only",
        *(f"-I{each}" for each in headers),
        str(SOURCE / "fuzz" / f"{target}.cpp"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_break_a_reader(fuzzing: Fuzzing, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, profile = fuzzing.programs / f"fuzz_{target}", fuzzing.corpus / f"{target}.profile"
    environment = {**os.environ, "BESPOKE_FUZZ_MANIFEST": str(fuzzing.manifest), "LLVM_PROFILE_FILE": str(profile)}
    # libFuzzer reads its peak from ru_maxrss, which Linux begins at what the process held that started it.
    most = 2048 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    done = subprocess.run(
        [
            program,
            fuzzing.corpus / target,
            f"-dict={fuzzing.words}",
            f"-max_total_time={SECONDS}",
            "-max_len=20000",
            "-timeout=10",
            f"-rss_limit_mb={most}",
            "-print_final_stats=1",
            f"-artifact_prefix={fuzzing.corpus}/",
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    executed = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    assert executed
    assert covered
    lines = line_coverage(program, profile, target)
    with capsys.disabled():
        rows = ", ".join(f"{name} {share:.0f}%" for name, share in lines.items())
        seeds = len(list((fuzzing.corpus / target).iterdir()))
        print(
            f"\nfuzz {target}: {SECONDS} s, {executed[1]} inputs, {covered[-1]} edges, {seeds} in the corpus; lines covered: {rows}"
        )
    assert min(lines.values()) > 50, "the fuzzer does not get behind the first check"


def line_coverage(program: Path, profile: Path, target: str) -> dict[str, float]:
    """Share of the lines of each file that were executed, in percent."""
    merged = profile.with_suffix(".merged")
    subprocess.run(["llvm-profdata", "merge", "-o", merged, profile], check=True, capture_output=True)
    command = ["llvm-cov", "export", "-summary-only", f"-instr-profile={merged}", str(program)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    shares = {Path(file["filename"]).name: file["summary"]["lines"]["percent"] for file in report["data"][0]["files"]}
    return {name: shares[name] for name in FILES[target]}
