# SPDX-License-Identifier: Apache-2.0
"""Counts of how the code and the pages read: formatting, dialect, commas, and choices that belong in one place.

    python tools/count_words.py          one line for each count, then commas a sentence for each page
    python tools/count_words.py --list   also where each thing stands

The prose of a page is its paragraphs and list items, without headings, tables, code blocks, figures and checks. Inline code counts
as one word, and a link as its text. A sentence ends at `.`, `!` or `?` before a space and anything but a small letter, or with its
paragraph or list item. A comma counts before a space or the end of a line, so the one in 1,024 does not.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ("sdk", "plugins", "tests", "tools", "sample_apps")
PRODUCT = ("sdk", "plugins")
ENGINES = {"core", "torch", "executorch"}

_LEFT_OUT = re.compile(
    r"^<!-- (?P<kind>(?:figures|predicted):\w+|checks) -->.*?^<!-- /(?P=kind) -->|^ *```.*?^ *```|^(?: {4}[^\n]*\n)+|<!--.*?-->",
    re.MULTILINE | re.DOTALL,
)
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +", re.MULTILINE)
_END = re.compile(r"[.!?][\"')*\]]*\s+(?=[^a-z\s])|[.!?][\"')*\]]*$")


class Place(NamedTuple):
    file: str
    line: int
    text: str


class Commas(NamedTuple):
    commas: int
    sentences: int

    @property
    def rate(self) -> float:
        return self.commas / max(1, self.sentences)


def prose(page: str) -> list[str]:
    """The paragraphs and list items of a page, each on one line."""
    text = _LEFT_OUT.sub("\n\n", page)
    text = re.sub(r"^(?:#|\||!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"\n\s*\n", _ITEM.sub("\n\n", text))
    return [" ".join(part.split()) for part in parts if part.strip()]


def commas(page: str) -> Commas:
    """Commas and sentences in the prose of a page."""
    paragraphs = prose(page)
    ends = sum(len(_END.findall(part)) + (not re.search(r"[.!?][\"')*\]]*$", part)) for part in paragraphs)
    return Commas(sum(len(re.findall(r",(?=\s|$)", part)) for part in paragraphs), ends)


def pages(root: Path = ROOT) -> dict[str, str]:
    """Text by path, relative to the repository: README.md and all of docs."""
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def sources(folders: Sequence[str], root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Path and text of each Python file below these folders."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def docstrings(file: str, text: str) -> Iterator[Place]:
    """The docstrings of a module and of all classes and functions in it."""
    for node in _nodes(text):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            written = ast.get_docstring(node)
            if written:
                yield Place(file, node.body[0].lineno, written)


def docstrings_with_of(file: str, text: str) -> Iterator[Place]:
    """First lines of the docstrings whose first word is "Of"."""
    for place in docstrings(file, text):
        if re.match(r"Of\b", place.text):
            yield place._replace(text=place.text.splitlines()[0])


@cache
def comments(file: str, text: str) -> list[Place]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [Place(file, token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def comments_with_of(file: str, text: str) -> Iterator[Place]:
    """Comments whose first word is "of" in either case. A line that continues the comment above it is no beginning."""
    lines, before = text.splitlines(), None
    for place in comments(file, text):
        alone = lines[place.line - 1].lstrip().startswith("#")
        goes_on = (
            alone and before is not None and before.line == place.line - 1 and not before.text.rstrip().endswith(".")
        )
        if re.match(r"#[:\s]*[Oo]f\b", place.text) and not goes_on:
            yield place
        before = place if alone else None


def unformatted_lines(file: str, text: str) -> Iterator[Place]:
    """Lines that the formatter skips."""
    return (place for place in comments(file, text) if re.match(r"#\s*fmt:\s*(?:skip|off)\b", place.text))


def words(word: str, file: str, text: str) -> Iterator[Place]:
    for number, line in enumerate(text.splitlines(), 1):
        for _ in re.finditer(rf"\b{word}\b", line, re.IGNORECASE):
            yield Place(file, number, line.strip())


def target_contracts(file: str, text: str) -> Iterator[Place]:
    """Classes whose name ends in Target, whether protocols or base classes."""
    for node in _nodes(text):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Target"):
            yield Place(file, node.lineno, f"class {node.name}")


def engine_choices(file: str, text: str) -> Iterator[Place]:
    """Comparisons with the name of an engine. `error.name`, which is the name of a package, is no engine."""
    for node in _nodes(text):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        named = any(isinstance(side, ast.Constant) and side.value in ENGINES for side in sides)
        if named and "error.name" not in map(ast.unparse, sides):
            yield Place(file, sides[0].lineno, ast.unparse(node))


def is_formatted(root: Path = ROOT) -> bool:
    """Whether `ruff format` would change nothing."""
    command = [str(Path(sys.executable).parent / "ruff"), "format", "--check", "--quiet", "."]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 0


def counts(root: Path = ROOT) -> dict[str, list[Place]]:
    """What is counted, by its name, with its places."""
    everywhere, product = list(sources(PYTHON, root)), list(sources(PRODUCT, root))
    contracts = [(file, text) for file, text in product if Path(file).name == "contracts.py"]
    return {
        "lines that the formatter skips": [place for each in everywhere for place in unformatted_lines(*each)],
        'docstrings that begin with "Of"': [place for each in everywhere for place in docstrings_with_of(*each)],
        'comments that begin with "of"': [place for each in everywhere for place in comments_with_of(*each)],
        '"found" in sdk and plugins': [place for each in product for place in words("found", *each)],
        "protocols or base classes of targets": [place for each in contracts for place in target_contracts(*each)],
        "comparisons with an engine's name": [place for each in product for place in engine_choices(*each)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Counts of how the code and the pages read.")
    parser.add_argument("--list", action="store_true", help="also where each thing stands")
    listed = parser.parse_args(arguments).list
    print(f"ruff format --check: {'clean' if is_formatted() else 'not clean'}")
    for name, places in counts().items():
        print(f"{name}: {len(places)}")
        if listed:
            print(*(f"  {place.file}:{place.line}: {place.text}" for place in places), sep="\n")
    by_page = {page: commas(text) for page, text in pages().items()}
    print("\ncommas a sentence, commas, sentences:")
    for page, count in by_page.items():
        print(f"  {count.rate:.2f} {count.commas:5} {count.sentences:5}  {page}")
    for name, folder in (("README and docs", ""), ("docs", "docs/")):
        kept = [count for page, count in by_page.items() if page.startswith(folder)]
        total = Commas(sum(count.commas for count in kept), sum(count.sentences for count in kept))
        print(f"  {total.rate:.2f} {total.commas:5} {total.sentences:5}  all of {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
