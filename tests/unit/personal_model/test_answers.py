# SPDX-License-Identifier: Apache-2.0
"""Answers and evaluations: what is refused, and texts that come in pieces. tests/unit/reference holds the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bespoke import PersonalModel
from bespoke.errors import DataError, GenerationError
from tests.support.bundles import shakespeare, stories_bundle
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import CONTEXT

__all__ = ["stories_bundle"]


def test_prompts_and_settings_that_cannot_be_answered_are_refused(alice: PersonalModel) -> None:
    with pytest.raises(DataError, match="prompt"):
        list(alice.generate_ids([]))
    with pytest.raises(GenerationError, match="prompt"):
        list(alice.generate_ids([7] * CONTEXT))
    for settings in ({"temperature": -1.0}, {"top_p": 0.0}, {"top_k": 0}):
        with pytest.raises(GenerationError):
            list(alice.generate_ids([1], **settings))  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match="generate_ids"):
        alice.generate("words")


def test_evaluation_without_examples_is_a_typed_error(opened: Open) -> None:
    with pytest.raises(DataError, match="none"):
        opened(count=0).evaluate()
    with pytest.raises(DataError, match="none"):
        opened(count=0).evaluate([])


def test_text_streams_in_pieces_that_join_to_what_the_token_ids_say(
    stories_bundle: Path,
    stories: Path,
    data_folder: Path,
    tmp_path: Path,
) -> None:
    with PersonalModel.open(stories_bundle, tmp_path / "state") as model:
        for number, example in enumerate(shakespeare(data_folder, 3)):
            model.examples.add(example, id=str(number))
        tokenizer = Tokenizer.from_file(str(stories / "tokenizer.json"))
        prompt_ids = [1, *tokenizer.encode("Once upon a time", add_special_tokens=False).ids]
        ids = list(model.generate_ids(prompt_ids, max_tokens=12))
        pieces = list(model.generate("Once upon a time", max_tokens=12))
        assert "".join(pieces).strip() == tokenizer.decode(ids).strip()
        assert len(pieces) > 1
        assert model.train(run_steps=2).steps == 2
        assert model.generate("Once", max_tokens=3) is not None
