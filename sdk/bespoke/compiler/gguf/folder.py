# SPDX-License-Identifier: Apache-2.0
"""Writer of a GGUF file's metadata as the small files of a Hugging Face model folder.

A build then reads configuration, tokenizer, template and licence from it as from any other folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from bespoke.compiler.gguf.tokenizer import read_tokenizer
from bespoke.format.gguf_header import GgufHeader
from bespoke.model.gguf.configuration import read_settings

__all__ = ["write_model_folder"]

_LONGEST_LICENCE = 200  # characters of the licence's name
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]+)*")


def write_model_folder(header: GgufHeader, folder: Path, *, tokenizer: bool) -> None:
    """Write config.json, README.md with licence and languages and, if `tokenizer`, the tokenizer's two files.

    What the metadata lacks is left out.
    """
    _write(folder / "config.json", read_settings(header))
    if tokenizer and (files := read_tokenizer(header)) is not None:
        _write(folder / "tokenizer.json", files.tokenizer)
        _write(folder / "tokenizer_config.json", files.settings)
    if card := [*_licence(header), *_languages(header)]:
        (folder / "README.md").write_text("\n".join(["---", *card, "---", ""]), encoding="utf-8")


def _licence(header: GgufHeader) -> list[str]:
    """The line of the model card with the licence."""
    licence = header.metadata.get("general.license.name") or header.metadata.get("general.license")
    name = " ".join(licence.split())[:_LONGEST_LICENCE] if isinstance(licence, str) else ""
    return [f"license: {name}"] if name else []


def _languages(header: GgufHeader) -> list[str]:
    """The lines of the model card with the languages."""
    languages = header.metadata.get("general.languages")
    codes = [code for code in languages if isinstance(code, str)] if isinstance(languages, list | tuple) else []
    named = [code for code in codes if _LANGUAGE.fullmatch(code)]
    return ["language:", *(f"- {code}" for code in named)] if named else []


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
