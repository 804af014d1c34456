# SPDX-License-Identifier: Apache-2.0
"""The bundle's base model: what it said at build to a few everyday questions, and its answers to others."""

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
        answers: By question, the base model's answers that the bundle holds. Nothing is ever trained on them.
    """

    def __init__(self, bundle: Path, *, engine: str | None = None, trust: Mapping[str, Any] | None = None) -> None:
        self._bundle, self._engine, self._trust = bundle, engine, trust or {}
        with read_bundle(bundle, **self._trust) as opened:
            self.answers = {row.words: row.answer for row in behaviour_prompts(opened)}

    def generate(self, prompt: str | Sequence[Any], *, max_tokens: int) -> Iterator[str]:
        """Yields the pieces of an answer. The model is open for this answer only, with a state that nobody has written to."""
        with (
            TemporaryDirectory() as state,
            PersonalModel.open(self._bundle, state, engine=self._engine, **self._trust) as model,
        ):
            yield from model.generate(prompt, max_tokens=max_tokens)
