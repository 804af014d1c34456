# SPDX-License-Identifier: Apache-2.0
"""The headers of the C API, as text."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

INCLUDE = REPOSITORY / "bindings" / "native" / "include"
HEADERS = ("bespoke_base.h", "bespoke_engine.h", "bespoke.h")
_FUNCTION = re.compile(r"^BESPOKE_(?:API|CHECKED) [^;(]*?\b(bespoke_\w+)\(", re.MULTILINE)


def text() -> str:
    """All headers, one after the other, with their comments."""
    return "".join((INCLUDE / name).read_text(encoding="utf-8") for name in HEADERS)


def declarations() -> str:
    """The headers without comments and without what says whether a pointer may be null."""
    bare = re.sub(r"/\*.*?\*/", "", text(), flags=re.DOTALL)
    bare = re.sub(r"^#define BESPOKE_(NULL|NONNULL).*$", "", bare, flags=re.MULTILINE)
    return re.sub(r"\(\*\s+", "(*", re.sub(r" ?BESPOKE_(NULL|NONNULL)\b", "", bare))


def functions() -> set[str]:
    return set(_FUNCTION.findall(text()))
