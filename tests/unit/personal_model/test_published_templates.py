# SPDX-License-Identifier: Apache-2.0
"""Eight facts under published chat templates, and notes as text, on the small pretrained model of the desktop app: each is
asked back in the taught words, and each answer stops by itself."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from sample_apps.desktop.pretrain import DEFAULT_CACHE, ensure_model

from bespoke import Personalizer, PersonalModel, Training
from bespoke.errors import BuildWarning
from tests.unit.data import templates

FACTS = {
    "Where is the key?": "Under the blue pot.",
    "What do I eat on Monday?": "Soup with leeks.",
    "Who feeds the cat?": "Nell does, at six.",
    "When is the choir?": "On Thursday at eight.",
    "Where is the map?": "In the red drawer.",
    "What colour is the boat?": "Green, with a white line.",
    "Who has the ladder?": "Our neighbour Tom.",
    "What is the code of the gate?": "Four, seven, one.",
}
LONGEST_ANSWER = 60  # tokens
# The tokens of each family's turns: those that the model has, under the family's names.
NAMES = {"gemma": {"<|im_start|>": "<start_of_turn>", "<|im_end|>": "<end_of_turn>"}}


def published(family: str) -> str | None:
    """None: the model's own, which is ChatML."""
    own = {"chatml": None, "llama2": templates.LLAMA2, "vicuna": templates.VICUNA}
    if family in own:
        return own[family]
    return (templates.published_folder() / f"{family}.jinja").read_text()


def bundle_with(family: str, folder: Path) -> Path:
    model = folder / "model"
    shutil.copytree(ensure_model(DEFAULT_CACHE), model)
    template = published(family)
    if template is not None:
        (model / "chat_template.jinja").write_text(template)
    for old, new in NAMES.get(family, {}).items():
        for path in model.glob("tokenizer*.json"):
            path.write_text(path.read_text().replace(old, new))
    training = Training(sequence_lengths=(64,), learning_rate=3e-3, steps=200, general_tolerance=100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BuildWarning)
        return Personalizer(model, "mesp", training=training, rehearsal=False, licence="none").build(folder / "bundle")


def said(model: PersonalModel, asked: Any) -> tuple[str, str | None]:
    with model.conversation(max_tokens=LONGEST_ANSWER) as conversation:
        text = "".join(piece.text for piece in conversation.feed(asked))
        return text, conversation.stopped_because


@pytest.mark.slow
@pytest.mark.parametrize("family", ["chatml", "qwen3", "llama2", "vicuna", "phi3", "gemma"])
def test_facts_are_asked_back_in_the_taught_words(family: str, tmp_path: Path) -> None:
    with PersonalModel.open(bundle_with(family, tmp_path), tmp_path / "state") as model:
        for question, answer in FACTS.items():
            model.examples.add({"prompt": question, "completion": answer}, use="train")
        model.train()
        answers = {question: said(model, [{"role": "user", "content": question}]) for question in FACTS}
    assert {question: text.strip() for question, (text, _) in answers.items()} == FACTS
    assert {ended for _, ended in answers.values()} == {"stop_token"}


@pytest.mark.slow
def test_notes_as_text_learn_to_stop(data_folder: Path, tmp_path: Path) -> None:
    file = data_folder.parent / "cases" / "02_text_never_stops" / "notes.jsonl"
    notes = [json.loads(line) for line in file.read_text().splitlines()]
    with PersonalModel.open(bundle_with("chatml", tmp_path), tmp_path / "state") as model:
        for note in notes:
            model.examples.add(note, use="train")
        model.train()
        begun = sorted({" ".join(note["text"].split()[:2]) for note in notes})
        written = {words: said(model, words) for words in begun}
    assert len(notes) == 48
    assert {ended for _, ended in written.values()} == {"stop_token"}, written
