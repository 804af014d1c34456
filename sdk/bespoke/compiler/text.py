# SPDX-License-Identifier: Apache-2.0
"""A bundle's text rules: the model's tokenizer, and its chat template as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bespoke.bundle.manifest import TextRecord
from bespoke.compiler.request import BuildRequest
from bespoke.data.marks import check_turns_are_distinct
from bespoke.data.template import compile_turns, find_template
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.data.tokenizer_from_file import can_be_read_back
from bespoke.data.turns import Turns, protect_markers, stop_ids
from bespoke.data.turns_check import check_trained_as_asked
from bespoke.data.turns_in_text import TurnReader
from bespoke.errors import BuildWarning, ModelError
from bespoke.model.architecture import ModelConfig
from bespoke.model.special_tokens import end_ids, special_token_settings

__all__ = ["TextRules", "text_rules"]


@dataclass(frozen=True)
class TextRules:
    """Tokenizer and turns of a model, their manifest record, and their `files` by name in the bundle."""

    tokenizer: Tokenizer | None
    turns: Turns | None
    record: TextRecord
    files: dict[str, bytes]

    def turn_reader(self) -> TurnReader | None:
        return None if self.tokenizer is None or self.turns is None else TurnReader(self.tokenizer, self.turns)


def text_rules(request: BuildRequest, folder: Path, config: ModelConfig) -> TextRules:
    """The text rules of the model in `folder`.

    Raises ModelError or TemplateError if a bundle cannot hold them, or if training rows would differ from prompts. Warns with
    BuildWarning where the bundle differs from the chat template.
    """
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.open(path, special_token_settings(folder)) if request.text and path.is_file() else None
    template = find_template(folder) if tokenizer else None

    turns = None
    notes: list[str] = []
    if tokenizer is not None and template:
        turns = compile_turns(
            template,
            tokenizer.special_tokens,
            request.template_date,
            added_tokens=tokenizer.added_tokens,
            note=notes.append,
        )
        for note in notes:
            BuildWarning.warn(note[:1].upper() + note[1:])
        protect_markers(tokenizer, turns)
        check_turns_are_distinct(tokenizer, turns)
        _check_within_embedding(tokenizer, turns, config.vocab_size)
        check_trained_as_asked(tokenizer, turns)

    files = {}
    if tokenizer is not None:
        files["text/tokenizer.bin"] = data = write_tokenizer_file(tokenizer, str(path))
        if not can_be_read_back(data):
            files |= {f"text/{name}": data for name, data in tokenizer.files().items()}
    if turns is not None:
        files["text/turns.json"] = turns.to_bytes()

    ends = {id for id in end_ids(folder) if id < config.vocab_size}
    record = TextRecord(
        tokenizer=_named("tokenizer.json", files),
        tokenizer_config=_named("tokenizer_config.json", files),
        tokenizer_bin=_named("tokenizer.bin", files),
        turns=_named("turns.json", files),
        train_on=request.train_on,
        bos_id=tokenizer.bos_id if tokenizer else None,
        eos_id=tokenizer.eos_id if tokenizer else None,
        stop_ids=tuple(sorted(stop_ids(tokenizer, turns) | ends)) if tokenizer else (),
        vocab_size=config.vocab_size,
    )
    return TextRules(tokenizer, turns, record, files)


def _named(file: str, files: Mapping[str, bytes]) -> str | None:
    """The file's name in the bundle; None if the bundle does not have it."""
    name = f"text/{file}"
    return name if name in files else None


def _check_within_embedding(tokenizer: Tokenizer, turns: Turns, vocab_size: int) -> None:
    """Raise ModelError if the chat template uses tokens that the embedding has no row for."""
    beyond = sorted(
        {token for text in turns.markers() for token in tokenizer.encode_template(text) if token >= vocab_size}
    )
    if beyond:
        raise ModelError(
            "The chat template",
            got=f"tokens with ids from {beyond[0]} on: {', '.join(repr(tokenizer.decode([token], False)) for token in beyond[:4])}",
            expected=f"tokens of the model, whose embedding has {vocab_size} rows",
            next_step="Take the tokenizer and the chat template from the model's own folder, or enlarge the embedding "
            "(model.resize_token_embeddings)",
        )
