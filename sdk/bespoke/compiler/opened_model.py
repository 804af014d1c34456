# SPDX-License-Identifier: Apache-2.0
"""The model of a build: the folders of its settings and text rules, and its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from bespoke.compiler.request import BuildRequest
from bespoke.data.other_tokenizers import check_no_other_tokenizer
from bespoke.errors import BuildWarning
from bespoke.format.gguf_header import is_gguf, read_gguf_header
from bespoke.model.architecture import ModelConfig
from bespoke.model.compressed_tensors import open_weights
from bespoke.model.families import read_config
from bespoke.model.folder_kind import TOKENIZER, notes_on
from bespoke.model.hub import resolve_model
from bespoke.model.weight_source import WeightSource

__all__ = ["OpenedModel", "model_folder", "open_model"]


@dataclass
class OpenedModel:
    """The model of a build.

    folder:       config.json, as transformers reads it, and the licence
    text_folder:  tokenizer and chat template

    Weights are opened at their first use: other errors of a build come up without them.
    """

    folder: Path
    text_folder: Path
    config: ModelConfig
    open_weights: Callable[[], WeightSource]

    @cached_property
    def weights(self) -> WeightSource:
        return self.open_weights()


@contextmanager
def open_model(request: BuildRequest) -> Iterator[OpenedModel]:
    """Open the model of a request. Raises ModelError if it is no model, warns with BuildWarning of files that are not used."""
    own_text = request.text and request.tokenizer is None
    with model_folder(resolve_model(request.model), tokenizer=own_text) as (folder, weights):
        config = read_config(folder)
        text_folder = folder if request.tokenizer is None else resolve_model(request.tokenizer)
        if request.text and not (text_folder / TOKENIZER).is_file():
            check_no_other_tokenizer(text_folder)
        for note in notes_on(folder, text_folder if request.text else None):
            BuildWarning.warn(note)
        yield OpenedModel(folder, text_folder, config, partial(weights, config))


@contextmanager
def model_folder(path: Path, *, tokenizer: bool = True) -> Iterator[tuple[Path, Callable[[ModelConfig], WeightSource]]]:
    """A model's Hugging Face folder, and the function that opens its weights.

    A GGUF file becomes a temporary folder with its metadata; the tokenizer's only if `tokenizer`.
    """
    if not is_gguf(path):
        yield path, lambda config: open_weights(path)
        return
    from bespoke.compiler.gguf.folder import write_model_folder
    from bespoke.model.gguf.checkpoint import GgufCheckpoint

    header = read_gguf_header(path)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / path.name  # errors name it so
        folder.mkdir()
        write_model_folder(header, folder, tokenizer=tokenizer)
        yield folder, partial(GgufCheckpoint, header)
