# SPDX-License-Identifier: Apache-2.0
"""Reader of a model card: the fields at the start of a model folder's README.md."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["card_languages", "read_card"]

_MAX_BYTES = 1_000_000


def read_card(folder: Path | str) -> dict[str, list[str]]:
    """The values of each field of the YAML block between two lines of dashes. Empty without such a block.

    Only fields of the top level are read, with a value on the same line or a list below.
    """
    readme = Path(folder) / "README.md"
    if not readme.is_file():
        return {}
    with readme.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        match = re.fullmatch(r"([A-Za-z_][\w-]*):\s*(.*?)\s*", line)
        item = re.fullmatch(r"\s*-\s*(.+?)\s*", line)
        if match:
            key = match[1]
            fields[key] = [match[2].strip("'\"")] if match[2] else []
        elif item and key:
            fields[key].append(item[1].strip("'\""))
        else:
            key = ""
    return fields


def card_languages(folder: Path | str) -> list[str]:
    """The languages that the card names, as codes of two letters: "de" for "de-AT" too."""
    words = re.findall(r"[A-Za-z-]+", " ".join(read_card(folder).get("language", [])))
    return list(dict.fromkeys(code for word in words if len(code := word.partition("-")[0].lower()) == 2))
