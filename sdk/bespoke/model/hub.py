# SPDX-License-Identifier: Apache-2.0
"""Resolver of a model to its folder: a local folder, or an id on the Hugging Face hub. It never downloads code."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bespoke.errors import MissingDependency, ModelError
from bespoke.format.gguf_header import is_gguf

__all__ = ["resolve_model"]

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_WANTED = (
    "*.safetensors",
    "*.safetensors.index.json",
    "*config.json",
    "tokenizer.json",
    "tokenizer.model",  # this and the next two show which tokenizer a model without tokenizer.json has
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.*",
    "LICEN[CS]E*",
    "NOTICE*",
    "USE_POLICY*",
    "README.md",
)
_UNWANTED = ("*/*", "consolidated*")  # other copies of the same weights


def resolve_model(model: str | Path, cache: Path | str | None = None) -> Path:
    """The folder of `model`: the given folder, or a snapshot downloaded into `cache` (the hub's own by default).

    A GGUF file is returned as it is. Raises ModelError if there is no such folder and the hub has no such model, refuses
    it or cannot be reached.
    """
    folder = Path(model)
    if os.path.isdir(folder) or is_gguf(folder):
        return folder
    if isinstance(model, Path) or not _HUB_ID.fullmatch(model) or os.path.exists(folder):
        raise ModelError(
            f"model {model}",
            got="a file" if os.path.exists(folder) else "no such folder",
            expected="a folder with config.json and safetensors, a GGUF file, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct",
            next_step="Check the path",
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingDependency.of(f"Model '{model}' from the hub", "huggingface_hub", "build") from None
    try:
        return Path(
            snapshot_download(
                model,
                cache_dir=cache,
                allow_patterns=list(_WANTED),
                ignore_patterns=list(_UNWANTED),
            )
        )
    except Exception as error:  # the hub's client raises its own, httpx's, requests' and the system's errors
        raise _unreachable(model, error) from error


def _unreachable(model: str, error: Exception) -> ModelError:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in kinds:
        got, step = "a model whose terms must be accepted first", "Accept them on its page and log in: hf auth login"
    elif "RepositoryNotFoundError" in kinds:
        got, step = (
            "no model of this name on the hub, nor a folder",
            "Check the name; for a private model: hf auth login",
        )
    else:
        got = f"no answer from the hub ({type(error).__name__}) and no such folder"
        step = "Check the network, or download the model elsewhere and give its folder"
    return ModelError(f"model {model}", got=got, expected="a folder or a reachable hub id", next_step=step)
