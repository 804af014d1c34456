# SPDX-License-Identifier: Apache-2.0
"""Writer of a GGUF file's metadata as the small files of a Hugging Face model folder.

A build then reads configuration, tokenizer, template and licence from it as from any other folder.
"""

from __future__ import annotations

import json
from pathlib import Path

from bespoke.compiler.gguf.tokenizer import read_tokenizer
from bespoke.format.gguf_header import GgufHeader
from bespoke.model.gguf.configuration import read_settings

__all__ = ["write_model_folder"]

_LONGEST_LICENCE = 200  # characters of the licence's name


def write_model_folder(header: GgufHeader, folder: Path, *, tokenizer: bool) -> None:
    """Write config.json, README.md with the licence and, if `tokenizer`, the tokenizer's two files, as far as they are known."""
    _write(folder / "config.json", read_settings(header))
    if tokenizer and (files := read_tokenizer(header)) is not None:
        _write(folder / "tokenizer.json", files.tokenizer)
        _write(folder / "tokenizer_config.json", files.settings)
    licence = header.metadata.get("general.license.name") or header.metadata.get("general.license")
    if isinstance(licence, str) and (name := " ".join(licence.split())[:_LONGEST_LICENCE]):
        (folder / "README.md").write_text(f"---\nlicense: {name}\n---\n", encoding="utf-8")


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
