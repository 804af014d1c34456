# SPDX-License-Identifier: Apache-2.0
"""The bundle's base model: a few everyday questions that nothing is trained on, and its answers to these and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bespoke.answering import behaviour_prompts
from bespoke.bundle.reader import read_bundle
from bespoke.personal_model import PersonalModel

__all__ = ["BaseModel"]


class BaseModel:
    """Answers as nobody's model does. Any thread may call it.

    Attributes:
        questions: Those of the bundle's behaviour rows. Its answers to them may be cut, so they are asked again.
    """

    def __init__(self, bundle: Path, *, engine: str | None = None, trust: Mapping[str, Any] | None = None) -> None:
        self._bundle, self._engine, self._trust = bundle, engine, trust or {}
        with read_bundle(bundle, **self._trust) as opened:
            self.questions = [row.words for row in behaviour_prompts(opened)]

    def generate(self, prompt: str | Sequence[Any], *, max_tokens: int) -> Iterator[str]:
        """Yields the pieces of an answer. The model is open for this answer only, with a state that nobody has written to."""
        with (
            TemporaryDirectory() as state,
            PersonalModel.open(self._bundle, state, engine=self._engine, **self._trust) as model,
        ):
            yield from model.generate(prompt, max_tokens=max_tokens)
