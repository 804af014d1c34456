# SPDX-License-Identifier: Apache-2.0
"""The licence of a base model. A bundle carries it to every user, so a build without a licence is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from bespoke.errors import ConfigError
from bespoke.model.card import read_card
from bespoke.remedies import Like, setting

__all__ = ["Licence", "find_licence"]

_FILES = re.compile(r"(licen[cs]e|copying|notice|use_policy)([._-].*)?", re.IGNORECASE)
_MAX_BYTES = 1_000_000
_FIRST = ("licen", "copying")


class Licence(NamedTuple):
    """`text` is a line that names the licence; `files` are the files of the model folder that hold its terms."""

    text: str
    files: tuple[Path, ...]


def find_licence(folder: Path | str, licence: str | None = None) -> Licence:
    """The licence of a model folder: `licence` if given, else README.md's front matter, else its file's first line.

    Raises ConfigError if there is none.
    """
    folder = Path(folder)
    files = tuple(
        path
        for path in sorted(folder.iterdir())
        if _FILES.fullmatch(path.name) and path.is_file() and path.stat().st_size <= _MAX_BYTES
    )
    text = (licence or "").strip() or _on_card(folder) or _first_line(files)
    if not text:
        raise ConfigError(
            f"licence of {folder}",
            got="no LICENSE file and no `license:` in README.md",
            expected="the terms under which the model may be passed on to users",
            next_step="Add the file, or say it: " + setting("licence", Like('"..."', "TEXT")),
        )
    return Licence(text, files)


def _on_card(folder: Path) -> str:
    """`license:` of the model card; `license_name:` if `license:` is "other"."""
    card = {name: ", ".join(filter(None, values)) for name, values in read_card(folder).items()}
    name = card.get("license", "")
    return card.get("license_name") or name if name in ("", "other") else name


def _first_line(files: tuple[Path, ...]) -> str:
    for path in files:
        if path.name.lower().startswith(_FIRST):
            text = path.read_text(encoding="utf-8", errors="replace")
            return next((line.strip()[:100] for line in text.splitlines() if line.strip()), "")
    return ""
