# SPDX-License-Identifier: Apache-2.0
"""The special tokens of a model folder: bos, eos, pad, unk.

Files are read in the order of transformers: tokenizer_config.json, special_tokens_map.json, then the ids of
generation_config.json and config.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bespoke.errors import ModelError
from bespoke.format.plain_file import read_plain

__all__ = ["end_ids", "special_token_settings"]

NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json")
_ID_FILES = ("generation_config.json", "config.json")
_TOKENIZER = "tokenizer.json"


def special_token_settings(folder: Path) -> dict[str, Any]:
    """The settings of tokenizer_config.json, with the special tokens that other files of the folder name.

    Raises ModelError for a file that is no JSON object.
    """
    settings = dict(_read(folder / _TOKENIZER_FILES[0]))
    for name, value in _read(folder / _TOKENIZER_FILES[1]).items():
        if name in NAMES and not settings.get(name):
            settings[name] = value
    missing = [name for name in NAMES if not settings.get(name)]
    ids = {name: values[0] for name in missing if (values := _ids(folder, f"{name}_id"))}
    if ids:
        texts = _texts(folder / _TOKENIZER)
        settings |= {name: texts[id] for name, id in ids.items() if id in texts}
    return settings


def end_ids(folder: Path) -> set[int]:
    """All ids at which transformers ends an answer of this model."""
    return set(_ids(folder, "eos_token_id"))


def _ids(folder: Path, name: str) -> list[int]:
    """Ids under `name` in the first file that has any; the file holds an id or a list of ids."""
    for file in _ID_FILES:
        value = _read(folder / file).get(name)
        values = value if isinstance(value, list) else [value]
        ids = [id for id in values if isinstance(id, int) and not isinstance(id, bool) and id >= 0]
        if ids:
            return ids
    return []


def _texts(tokenizer: Path) -> dict[int, str]:
    document = _read(tokenizer)
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    texts = {id: text for text, id in vocabulary.items()} if isinstance(vocabulary, dict) else {}
    added = document.get("added_tokens")
    tokens = [token for token in (added if isinstance(added, list) else []) if isinstance(token, dict)]
    return texts | {token["id"]: token["content"] for token in tokens}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        document = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ModelError(
            str(path),
            got="no JSON object",
            expected="the settings of a model",
            next_step="Take the file from the model's own folder",
        )
    return document
