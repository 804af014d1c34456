# SPDX-License-Identifier: Apache-2.0
"""Chat templates as published (those that `trl` ships): each is trained as it is asked.

The oracle is `transformers`: its rendering of a template, and the `tokenizers` package on the rendered text.
"""

from __future__ import annotations

import random
import re
import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.data.turns_check import check_trained_as_asked
from tests.support.checks import few_of
from tests.support.example_encoder import ExampleEncoder
from tests.unit.data.templates import published_folder

NAMES = {
    "bos_token": "<|bos_token|>",
    "eos_token": "<|eos_token|>",
    "pad_token": "<|pad_token|>",
    "unk_token": "<|unk_token|>",
}
DATE = "2024-07-26"
AS_IT_IS = "as it is"
# What is changed of the others, by a word of the note that the build gives; of a template and of trl's variant for training.
OTHERS = {
    "deepseek_r1_distill": "ends a prompt",
    "deepseek_r1_distill_training": "ends a prompt",
    "deepseekv3": "ends a prompt",
    "deepseekv3_training": "ends a prompt",
    "glm4moe": "ends a prompt",
    "glm4moe_training": "ends a prompt",
    "gptoss": "ends a prompt",
    "gptoss_training": "ends a prompt",
    "muse_glimmer": "ends a prompt",
    "muse_glimmer_training": "ends a prompt",
    "qwen3_5_nothink": "before earlier answers",
    "qwen3": "enable_thinking",
    "qwen3_training": "enable_thinking",
    "qwen3_5_think": "enable_thinking",
    "qwen3_5_think_training": "enable_thinking",
    "qwen3_6": "enable_thinking",
    "qwen3_6_training": "enable_thinking",
    "qwen3_8": "enable_thinking",
    "qwen3_8_training": "enable_thinking",
    "nemotron_3_5_lightning": "enable_thinking",
    "nemotron_3_5_lightning_training": "enable_thinking",
    "nemotron_3_nano": "enable_thinking",
    "nemotron_3_nano_training": "enable_thinking",
    "nemotron_3_super": "enable_thinking",
    "nemotron_3_super_training": "enable_thinking",
    "nemotron_3_ultra": "enable_thinking",
    "nemotron_3_ultra_training": "enable_thinking",
}
# They read a content as a list of parts, for images, and find nothing in a text.
WITH_IMAGES = ("idefics3", "idefics3_training", "llava_next", "llava_next_training", "smolvlm", "smolvlm_training")

PUBLISHED = sorted(path.stem for path in published_folder().glob("*.jinja"))
SPECIAL = re.compile(r"<[|｜]?[\w▁]+[|｜]?>|</?(?:think|s)>|\[\w+\]")


@cache
def byte_level() -> str:
    """A tokenizer of Qwen's kind with few words, which is quick to load."""
    whole = tokenizers.Tokenizer(tokenizers.models.BPE())
    whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    whole.train_from_iterator(
        ["the user said hello to the assistant\n\nand a system answered: yes, no, please"] * 20, trainer
    )
    text: str = whole.to_str()
    return text


class Model:
    """A template, and a tokenizer with the tokens that it names."""

    def __init__(self, name: str) -> None:
        self.reads_parts = name in WITH_IMAGES
        self.template = (published_folder() / f"{name}.jinja").read_text()
        whole = tokenizers.Tokenizer.from_str(byte_level())
        texts = sorted({*SPECIAL.findall(self.template), *NAMES.values()})
        whole.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in texts])
        self.whole = whole
        self.owner = PreTrainedTokenizerFast(tokenizer_object=whole, **NAMES)
        self.own = Tokenizer.from_bytes(whole.to_str().encode())
        self.own.special_tokens.update(NAMES)
        self.own.eos_id = whole.token_to_id(NAMES["eos_token"])
        self.notes: list[str] = []

    def turns(self) -> Turns:
        return compile_turns(
            self.template, self.own.special_tokens, DATE, added_tokens=self.own.added_tokens, note=self.notes.append
        )

    def rendered(self, messages: list[dict[str, str]], generate: bool) -> str:
        """By transformers."""
        given: list[dict[str, Any]] = [dict(message) for message in messages]
        for message in given if self.reads_parts else ():
            message["content"] = [{"type": "text", "text": message["content"]}]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text: str = self.owner.apply_chat_template(
                given,
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=generate,
                date_string="26 Jul 2024",
            )
        return text


def conversations(turns: Turns, count: int) -> list[list[dict[str, str]]]:
    chance = random.Random(0)
    words = ["Hello", "Zürich", "🙂", "two  spaces", "line\nbreak", "1,024", "我明天", '"quoted"', "?"]
    made = []
    for number in range(count):
        roles = ["user", "assistant"] * chance.randint(1, 3)
        if number % 2 and turns.knows("start", "system", False):
            roles = ["system", *roles]
        made.append(
            [{"role": role, "content": " ".join(chance.choices(words, k=chance.randint(1, 6)))} for role in roles]
        )
    return made


def test_every_template_that_trl_ships_is_a_row_of_this_test() -> None:
    assert len(PUBLISHED) > 60
    assert set(OTHERS) | set(WITH_IMAGES) <= set(PUBLISHED)


# Variants for training differ little from what a model is published with.
@pytest.mark.parametrize("name", few_of(PUBLISHED, [name for name in PUBLISHED if not name.endswith("_training")]))
def test_a_published_template_trains_what_is_asked(name: str) -> None:
    model = Model(name)
    turns = model.turns()
    expected = OTHERS.get(name, AS_IT_IS)
    assert (AS_IT_IS if not model.notes else expected) == expected, model.notes
    assert expected == AS_IT_IS or any(expected in note for note in model.notes)
    encoder = ExampleEncoder(model.own, turns, "assistant", 4096)
    check_trained_as_asked(model.own, turns)
    for messages in conversations(turns, 6):
        row = encoder.encode({"messages": messages}).rows[0]
        tokens, mask = row.tokens.tolist(), row.mask.tolist()
        for last in (i for i, message in enumerate(messages) if message["role"] == "assistant"):
            prompt = encoder.prompt_ids(messages[:last])
            assert tokens[: len(prompt)] == prompt
            end = mask.index(0, len(prompt)) if 0 in mask[len(prompt) :] else len(mask)
            answer = model.own.decode(tokens[len(prompt) : end], skip_special=False)
            space = " " if model.reads_parts else ""  # which the model itself writes after "Assistant:"
            assert answer == space + messages[last]["content"] + turns.ending("assistant")
            assert encoder.stop_ids().intersection(tokens[len(prompt) : end])
        # Each token that the tokenizer has for the template's own text is one token in training too.
        text = model.own.decode(tokens, skip_special=False)
        assert [t for t in tokens if t in model.own.control_ids] == [
            t for t in model.whole.encode(text, add_special_tokens=False).ids if t in model.own.control_ids
        ]
        if expected == AS_IT_IS:
            assert text == model.rendered(messages, False)
            prompt_text = model.own.decode(encoder.prompt_ids(messages[:-1]), skip_special=False)
            assert prompt_text == model.rendered(messages[:-1], True)


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_nothink", "qwen3_6"])
def test_earlier_answers_are_written_as_in_the_variant_that_trl_trains_with(family: str) -> None:
    published, for_training = Model(family), Model(f"{family}_training")
    turns = published.turns()
    for messages in conversations(turns, 6):
        assert "".join(piece.text for piece in turns.render(messages)) == for_training.rendered(messages, False)


def test_a_second_answer_follows_the_whole_of_the_first() -> None:
    turns = Model("qwen3").turns()
    messages = [message for one in conversations(turns, 1) for message in one] * 2
    pieces = turns.render(messages)
    for earlier, later in pairwise(piece for piece in pieces if piece.role == "assistant"):
        assert earlier.is_content != later.is_content
