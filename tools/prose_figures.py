# SPDX-License-Identifier: Apache-2.0
"""Finder of figures in prose: times, sizes, rates and ratios that a page states without a benchmark.

    python tools/prose_figures.py      prints a line for each, `page:line: figure`; exits with 1 if there are any

A measured figure belongs between `<!-- figures:NAME -->` markers, where a benchmark writes it (tests/benchmarks/figures.py).
Text between such markers or those of checks, code, comments and targets of links are left out. Constants of formats, settings
and definitions are no measurements: prose_figures.toml lists them by page and phrase, with a reason.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
ALLOWED = Path(__file__).with_suffix(".toml")

_WORD = r"\b(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|fifty|sixty|hundred|thousand|few|half)"
_NUMBER = r"(?<![\w^.])\d(?:[\d,.]*\d)?(?:e[-+]?\d+)?"
_TIME = (
    r"(?:(?:milli|micro|nano)seconds?|seconds|minutes?|hours?|days?)"  # "a second" is mostly the one after the first
)
_FRACTION = r"(?:half|halves|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|twelfth|hundredth|thousandth)s?"
_FIGURE = re.compile(
    rf"{_NUMBER} ?(?:[nµm]?s\b|[KMGT]i?B\b|[KMGT]?FLOPs?\b|[KMG]?Hz\b|%|°C)(?:/\w+)?"  # 12 ms, 3.2 GB, 40%
    rf"|(?:{_NUMBER}|{_WORD})[ -](?:{_TIME}|percent|nats?|watts?|joules?|times|fold|[KMGT]i?B)\b"  # two minutes, ten times
    rf"|(?:{_NUMBER}|some|few|hundreds? of|dozens of|tens of) ?(?:kilo|mega|giga)?bytes?\b|{_NUMBER}x\b"  # 32 bytes, 40x
    rf"|\b(?:twice|thrice) (?:the|as)\b|\bdouble the\b|\bhalf (?:of|the|as)\b|(?:\b\d+|{_WORD}) {_FRACTION}\b(?! time)"
    rf"|(?<![\w.])\d+ (?:of|against) \d+\b|(?<![\w.-])\d+\.\d+(?!\.?\w)|\b\d(?:\.\d+)?e-?\d+\b",  # 18 of 20, 0.87, 1e-5
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"^<!-- (?P<name>(?:figures|predicted):\w+) -->.*?^<!-- /(?P=name) -->|^<!-- checks -->.*?^<!-- /checks -->|^```.*?^```"
    r"|^(?: {4}[^\n]*\n)+|<!--.*?-->|`(?:(?!\n\n)[^`])+`|\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)


class Figure(NamedTuple):
    page: str
    line: int
    text: str
    sentence: str  # its line on the page


class Allowed(NamedTuple):
    """A phrase of `page`, line breaks aside, whose figures are constants, for `reason`."""

    page: str
    phrase: str
    reason: str


def figures(page: str, text: str, allowed: Iterable[Allowed] = ()) -> Iterator[Figure]:
    """The figures in the prose of one page, from top to bottom."""
    prose = text
    for entry in allowed:
        if entry.page == page:
            prose = re.sub(_phrase(entry), _blank, prose)
    prose = _LEFT_OUT.sub(_blank, prose)
    lines = text.splitlines()
    for match in _FIGURE.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        yield Figure(page, line, match[0].replace("\n", " "), lines[line - 1].strip())


def read_allowed(path: Path = ALLOWED) -> list[Allowed]:
    return [Allowed(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])]


def unused(allowed: Iterable[Allowed], texts: dict[str, str]) -> list[Allowed]:
    """Entries whose page no longer holds the phrase, or whose phrase holds no figure."""
    return [
        entry
        for entry in allowed
        if not re.search(_phrase(entry), texts.get(entry.page, "")) or not any(figures(entry.page, entry.phrase))
    ]


def pages() -> dict[str, str]:
    """Text by path, relative to the repository."""
    paths = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return {path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _phrase(entry: Allowed) -> str:
    return r"\s+".join(re.escape(word) for word in entry.phrase.split())


def _blank(match: re.Match[str]) -> str:
    """A mark that keeps the words before and after apart, and the line breaks, which keep line numbers."""
    return "\0" + "\n" * match[0].count("\n")


def main() -> int:
    texts, allowed = pages(), read_allowed()
    in_prose = [figure for page, text in texts.items() for figure in figures(page, text, allowed)]
    for figure in in_prose:
        print(f"{figure.page}:{figure.line}: {figure.text}    {figure.sentence}")
    old = unused(allowed, texts)
    for entry in old:
        print(f"{ALLOWED.name}: '{entry.phrase}' is not a figure on {entry.page}")
    print(
        f"{len(in_prose)} figures in prose without a benchmark behind them; {len(allowed)} constants allowed",
        file=sys.stderr,
    )
    return 1 if in_prose or old else 0


if __name__ == "__main__":
    sys.exit(main())
