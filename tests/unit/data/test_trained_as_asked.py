# SPDX-License-Identifier: Apache-2.0
"""What a build makes of templates and model folders, so that a model is asked as it was trained and learns to stop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import AutoTokenizer

from bespoke.compiler.text import text_rules
from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Glue, Turns
from bespoke.data.turns_check import check_trained_as_asked
from bespoke.errors import BespokeError, DataError, ModelError, TemplateError
from bespoke.model.special_tokens import end_ids, special_token_settings
from tests.support.example_encoder import ExampleEncoder
from tests.unit.data import templates

PLAIN_CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
PHI3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
PLAIN_WORDS = (
    "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n### End\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant:\n{% endif %}"
)
NO_END = (
    "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)


def text(turns: Turns, *roles: str, generate: bool = False) -> str:
    return "".join(
        piece.text for piece in turns.render([{"role": role, "content": role[0]} for role in roles], generate)
    )


def test_a_token_is_never_cut_by_what_two_endings_share() -> None:
    tokens = ("<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>")
    turns = compile_turns(PHI3, {"eos_token": "<|endoftext|>"}, added_tokens=tokens)
    assert turns.ending("assistant") == "<|end|>"
    assert compile_turns(PHI3, {"eos_token": "<|endoftext|>"}).ending("assistant") == "<|end|>\n<|"


@pytest.mark.parametrize("template", [templates.LLAMA2, templates.VICUNA])
def test_a_space_before_an_answer_is_its_models_to_write(template: str, story: Tokenizer) -> None:
    turns = compile_turns(template, NAMES, added_tokens=story.added_tokens)
    encoder = ExampleEncoder(story, turns, "assistant", 256)
    for answer in ("Tom", "7 cats", "ä"):
        messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": answer}]
        row = encoder.encode({"messages": messages}).rows[0]
        prompt = encoder.prompt_ids(messages[:1])
        assert row.tokens[: len(prompt)].tolist() == prompt
        assert row.mask[: len(prompt)].sum() == 0
        end = row.tokens.tolist().index(story.eos_id)
        assert row.mask[len(prompt) : end + 1].all()
        # As one text, the answer begins with the same tokens, its space included.
        answer_tokens = row.tokens[len(prompt) : end].tolist()
        assert story.decode([*prompt, *answer_tokens])[len(story.decode(prompt)) :].rstrip() == f" {answer}"


def test_an_answer_in_the_middle_of_a_conversation_is_trained_as_it_is_asked() -> None:
    notes: list[str] = []
    tokens = ["<think>", "</think>", "<|im_start|>", "<|im_end|>"]
    turns = compile_turns(templates.QWEN3, {}, added_tokens=tokens, note=notes.append)
    whole = text(turns, "user", "assistant", "user", "assistant")
    assert whole.startswith(text(turns, "user", generate=True) + "a<|im_end|>")
    assert whole.startswith(text(turns, "user", "assistant", "user", generate=True))
    assert any("enable_thinking=False" in note for note in notes)
    assert any("earlier answers" in note for note in notes)


def test_a_prompt_without_the_header_of_an_answer_gets_it() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}<final>{% endif %}{{ m.content }}<end>"
        "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    notes: list[str] = []
    turns = compile_turns(template, {}, added_tokens=["<end>", "<final>", "<user>", "<assistant>"], note=notes.append)
    assert text(turns, "user", generate=True) == "<user>u<end><assistant><final>"
    (note,) = notes
    assert "ends a prompt with '<end><assistant>'; here it ends with '<end><assistant><final>'" in note


def test_headers_that_have_nothing_in_common_are_refused_with_both() -> None:
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
    with pytest.raises(
        TemplateError, match="'<end><bot>' at the end of a prompt, and '<end><assistant>' before an answer"
    ):
        compile_turns(template, {}, added_tokens=["<end>"])


def test_a_template_that_leaves_out_the_systems_message_takes_none(story: Tokenizer) -> None:
    template = (
        "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}</s>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    turns = compile_turns(template, NAMES, added_tokens=story.added_tokens)
    assert text(turns, "user", "assistant") == "<user>u</s><assistant>a</s>"
    with pytest.raises(DataError, match="takes no system message"):
        turns.render([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])


def test_a_turn_that_ends_in_words_is_said(story: Tokenizer) -> None:
    notes: list[str] = []
    turns = compile_turns(PLAIN_WORDS, NAMES, added_tokens=story.added_tokens, note=notes.append)
    assert turns.ending("assistant").strip() == "### End"
    assert notes == ["no token ends an answer of this chat template: an answer ends before the words '### End'"]


def test_a_turn_that_nothing_ends_gets_the_models_end_token(story: Tokenizer) -> None:
    notes: list[str] = []
    turns = compile_turns(NO_END, NAMES, added_tokens=story.added_tokens, note=notes.append)
    assert text(turns, "user", "assistant") == "USER: u\nASSISTANT: a</s>\n"
    row = (
        ExampleEncoder(story, turns, "assistant", 256)
        .encode({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Tom"}]})
        .rows[0]
    )
    assert row.tokens[row.mask == 1][-1] == story.eos_id
    assert "'</s>' is put behind each" in notes[0]


def test_a_turn_that_nothing_can_end_is_said() -> None:
    notes: list[str] = []
    compile_turns(NO_END, {}, note=notes.append)
    assert notes == [
        "no token ends an answer of this chat template, and the model names no eos_token: answers end at max_tokens"
    ]


def test_rows_that_do_not_begin_as_their_prompts_are_found(qwen: Tokenizer, qwen_turns: Turns) -> None:
    check_trained_as_asked(qwen, qwen_turns)
    other = [
        Glue(previous=g.previous, next=g.next, last=g.last, text=g.text.replace("assistant\n", "assistant "))
        if (g.previous, g.next) == ("user", "generate")
        else g
        for g in qwen_turns.glue
    ]
    with pytest.raises(TemplateError, match="then trained words"):
        check_trained_as_asked(qwen, Turns(glue=tuple(other), trims=qwen_turns.trims, endings=qwen_turns.endings))


# ---- names of special tokens -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(stories: Path, tmp_path: Path) -> Path:
    """The small model's, whose tokenizer_config.json names nothing."""
    shutil.copytree(stories, tmp_path / "model")
    for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        (tmp_path / "model" / name).unlink(missing_ok=True)
    return tmp_path / "model"


def write(folder: Path, name: str, document: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("file", "document"),
    [
        ("tokenizer_config.json", {"eos_token": "</s>", **PLAIN_CLASS}),
        ("tokenizer_config.json", {"eos_token": {"__type": "AddedToken", "content": "</s>"}, **PLAIN_CLASS}),
        ("special_tokens_map.json", {"eos_token": "</s>"}),
        ("generation_config.json", {"eos_token_id": 2}),
        ("generation_config.json", {"eos_token_id": [2, 1]}),
    ],
)
def test_the_end_token_is_found_where_transformers_finds_it(folder: Path, file: str, document: dict[str, Any]) -> None:
    (folder / "config.json").write_text(
        json.dumps({**json.loads((folder / "config.json").read_text()), "eos_token_id": None})
    )
    write(folder, file, document)
    own = Tokenizer.open(folder, special_token_settings(folder))
    assert own.eos_id == 2
    if file == "tokenizer_config.json":
        assert AutoTokenizer.from_pretrained(folder).eos_token_id == own.eos_id


def test_an_answer_ends_at_every_id_of_the_generation_config(folder: Path) -> None:
    write(folder, "generation_config.json", {"eos_token_id": [2, 7]})
    assert end_ids(folder) == {2, 7}


def test_a_name_that_no_file_has_is_missed_in_the_files() -> None:
    with pytest.raises(
        TemplateError, match=r"eos_token, which no file of the model names; expected .* in tokenizer_config\.json"
    ):
        compile_turns("{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}", {})


def test_a_template_beyond_the_embedding_is_refused_at_build(folder: Path) -> None:
    whole = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    whole.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    whole.save(str(folder / "tokenizer.json"))
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match=r"tokens with ids from 512 on: '<\|im_start\|>'.*; expected .* 512 rows"):
        rules(folder)


def rules(folder: Path, **more: Any) -> Any:
    from bespoke import Personalizer
    from bespoke.model.families import read_config

    request = Personalizer(model=folder, optimizers=[], licence="none", data=None, **more).request
    return text_rules(request, folder, read_config(folder))


def test_every_error_of_a_template_is_one_of_ours(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}{{ 1 / 0 }}")
    with pytest.raises(BespokeError):
        rules(folder)
