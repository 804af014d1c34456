# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file says apart from its weights, as the small files of a Hugging Face model folder.

From there on a build treats it as any other folder: the same reading of configuration, tokenizer, template and licence.
"""

from __future__ import annotations

import json
from pathlib import Path

from bespoke.compiler.gguf.tokenizer import read_tokenizer
from bespoke.format.gguf_header import GgufHeader
from bespoke.model.gguf.configuration import read_settings

__all__ = ["write_model_folder"]

_LONGEST_LICENCE = 200  # characters of the line that names it


def write_model_folder(header: GgufHeader, folder: Path, *, tokenizer: bool) -> None:
    """Writes config.json, README.md with the licence, and with `tokenizer` its two files, as far as the metadata have them."""
    _write(folder / "config.json", read_settings(header))
    if tokenizer and (files := read_tokenizer(header)) is not None:
        _write(folder / "tokenizer.json", files.tokenizer)
        _write(folder / "tokenizer_config.json", files.settings)
    licence = header.metadata.get("general.license.name") or header.metadata.get("general.license")
    if isinstance(licence, str) and (name := " ".join(licence.split())[:_LONGEST_LICENCE]):
        (folder / "README.md").write_text(f"---\nlicense: {name}\n---\n", encoding="utf-8")


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
