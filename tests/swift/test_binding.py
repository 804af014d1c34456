# SPDX-License-Identifier: Apache-2.0
"""The Swift binding on Linux: its own tests and the code of the docs, on the installed core; `make test-swift`."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.apple.mlx.vectors import write_vectors
from tests.swift.package import BUILT, PACKAGE, REPOSITORY, check_refused, swift, toolchain

pytestmark = pytest.mark.swift

MODULES = (
    "Bespoke",
    "BespokeBackground",
    "BespokeCoreML",
    "BespokeDelivery",
    "BespokeFederation",
    "BespokeFoundationModels",
    "BespokeMLX",
    "Foundation",
    "FoundationModels",
    "FoundationNetworking",
)


def test_it_compiles_without_a_warning(compiled: str) -> None:
    assert [line for line in compiled.splitlines() if "warning:" in line] == []


def test_the_tests_of_the_binding_pass(compiled: str, prepared: Path) -> None:
    said = swift(
        "test", "--skip-build", "--no-parallel", BESPOKE_FIXTURE=str(prepared)
    )  # a limit counts all of the process
    count = re.search(r"Test run with (\d+) tests in \d+ suites passed", said)
    assert count is not None, said[-8000:]
    assert int(count[1]) >= 60


def test_the_harness_holds_with_the_engine_that_is_here(compiled: str, tmp_path: Path) -> None:
    """What it says on a Mac, of ExecuTorch alone; and what it says of a run that went another way."""
    write_vectors(tmp_path, {"cpu": {"executorch": {}}})
    harness = BUILT / "debug" / "Harness"
    said = toolchain(harness, tmp_path).stdout
    assert re.search(r"^\| cpu executorch \| [\d.]+% \| \d\.\de-\d+ \|.*\|$", said, re.MULTILINE), said
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_text(json.dumps({**run, "losses": [loss + 1 for loss in run["losses"]]}))
    wrong = toolchain(harness, tmp_path, check=False)
    assert wrong.returncode == 1
    assert "not all of it holds" in wrong.stdout


def test_it_is_formatted(compiled: str) -> None:
    places = [PACKAGE / name for name in ("Package.swift", "Sources", "Tests")]
    toolchain("swift", "format", "lint", "--strict", "--recursive", *places)


def test_the_code_of_the_docs_type_checks(compiled: str) -> None:
    """Each block is the body of a function or holds declarations."""
    blocks = [
        block
        for page in sorted((REPOSITORY / "docs").rglob("*.md"))
        for block in re.findall(r"^```swift\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    assert len(blocks) >= 12
    pages = BUILT / "pages"
    pages.mkdir(exist_ok=True)
    for old in pages.glob("*.swift"):
        old.unlink()
    imports = "".join(f"import {module}\n" for module in MODULES)
    for number, block in enumerate(blocks):
        inner = textwrap.indent(block, "    ")
        (pages / f"Block{number}.swift").write_text(
            f"{imports}\nenum Block{number} {{\n{inner}}}\n",
            encoding="utf-8",
        )
    type_check("-warnings-as-errors", *sorted(pages.glob("*.swift")))


@pytest.mark.parametrize("name", ["WrongUses", "WrongEffects"])  # apart: wrong types hide wrong effects
def test_wrong_uses_do_not_type_check(name: str, compiled: str) -> None:
    file = Path(__file__).with_name(f"{name}.swift")
    said = type_check(file, check=False).stdout
    check_refused(file, said)


def type_check(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """With all modules of the package and the stubs."""
    modules = ["-I", BUILT / "debug" / "Modules", "-I", PACKAGE / "Sources" / "CBespoke"]
    modules += ["-I", BUILT / "debug" / "CBespokeMLX.build", "-I", PACKAGE / "Tests" / "Stubs" / "CLibcrypto"]
    return toolchain("swiftc", "-typecheck", "-swift-version", "6", *modules, *arguments, check=check)


def test_what_is_public_is_documented() -> None:
    """But for the written files, where what a field means stands above its record."""
    assert [
        one
        for path in (PACKAGE / "Sources").rglob("*.swift")
        if path.parent.name != "Written"
        for one in undocumented(path)
    ] == []


def undocumented(path: Path) -> list[str]:
    """Public declarations without a comment above. Initializers of settings say nothing that their fields do not say, and what a
    protocol of Swift asks for is documented there."""
    of_a_protocol = (
        r"func (== |(encode|hash|makeAsyncIterator|next)\b)|struct Iterator|var (description|error\w+|recovery\w+)"
    )
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines):
        above = next(other for other in reversed(["", *lines[:number]]) if not other.strip().startswith("@"))
        public = re.match(r" *public (?!init|extension)", line)
        if public and not re.search(of_a_protocol, line) and "///" not in above:
            found.append(f"{path.name}: {line.strip()}")
    return found
