# SPDX-License-Identifier: Apache-2.0
"""The model that a build is given: its folder and configuration, and what of the folder the build passes over."""

from __future__ import annotations

import warnings
from pathlib import Path

from bespoke.compiler.request import BuildRequest
from bespoke.data.other_tokenizers import check_no_other_tokenizer
from bespoke.errors import BuildWarning
from bespoke.model.architecture import ModelConfig
from bespoke.model.families import read_config
from bespoke.model.folder_kind import TOKENIZER, notes_on
from bespoke.model.hub import resolve_model

__all__ = ["open_model_folder"]

_CALLERS = 6  # from here to the call of Personalizer's method: where Python shows the warning


def open_model_folder(request: BuildRequest) -> tuple[Path, ModelConfig]:
    """ModelError where it holds something else, BuildWarning for what is passed over."""
    folder = resolve_model(request.model)
    config = read_config(folder)
    if request.text and not (folder / TOKENIZER).is_file():
        check_no_other_tokenizer(folder)
    for note in notes_on(folder, request.text):
        warnings.warn(note, BuildWarning, stacklevel=_CALLERS)
    return folder, config
