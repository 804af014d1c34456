# SPDX-License-Identifier: Apache-2.0
"""Chat templates as data, held against Jinja itself."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.template import compile_turns, find_template
from bespoke.data.turns import Turns
from bespoke.errors import BundleError, DataError, ModelError, TemplateError
from tests.unit.data import templates
from tests.unit.data.conftest import conversation
from tests.unit.data.oracle import TOKENS, oracle_for

DATE = "2024-07-26"


# Qwen3's is held against the variant that trl trains with, in test_published_templates.py.
FAMILIES = {
    "gemma3": templates.GEMMA3,
    "llama32": templates.LLAMA32,
    "llama2": templates.LLAMA2,
    "zephyr": templates.ZEPHYR,
}


@pytest.mark.parametrize("family", ["qwen2.5", *FAMILIES])
def test_rendered_turns_are_the_templates_own_text(family: str, qwen_template: str, persona_lines: list[str]) -> None:
    template = FAMILIES.get(family, qwen_template)
    render, turns = oracle_for(template), compile_turns(template, TOKENS, DATE)
    chance = random.Random(family)
    for _ in range(200):
        messages = conversation(chance, persona_lines)
        assert "".join(p.text for p in turns.render(messages)) == render(messages, False)
        assert "".join(p.text for p in turns.render(messages[:-1], generate=True)) == render(messages[:-1], True)
        assert "".join(p.text for p in turns.render(messages[:-1])) == render(messages[:-1], False)


@pytest.mark.parametrize(
    ("family", "ending"),
    [
        ("qwen2.5", "<|im_end|>"),
        ("gemma3", "<end_of_turn>"),
        ("llama32", "<|eot_id|>"),
        ("zephyr", "</s>"),
    ],
)
def test_the_ending_of_a_turn_is_its_closing_token(family: str, ending: str, qwen_template: str) -> None:
    turns = compile_turns(FAMILIES.get(family, qwen_template), TOKENS, DATE)
    assert turns.ending("assistant") == turns.ending("user") == ending
    pieces = turns.render([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert [(p.text, p.is_content) for p in pieces if p.role == "assistant"] == [("b", True), (ending, False)]


def test_a_single_user_message_is_a_conversation(qwen_turns: Turns, qwen_template: str) -> None:
    messages = [{"role": "user", "content": "I live in Ulm."}]
    assert "".join(p.text for p in qwen_turns.render(messages)) == oracle_for(qwen_template)(messages, False)


def test_neighbouring_messages_of_one_role_are_taken_where_the_template_takes_them(
    qwen_turns: Turns, qwen_template: str
) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert "".join(p.text for p in qwen_turns.render(messages)) == oracle_for(qwen_template)(messages, False)
    gemma = compile_turns(templates.GEMMA3, TOKENS)
    with pytest.raises(DataError, match="Join neighbouring user messages"):
        gemma.render(messages)


def test_a_template_that_numbers_its_messages_is_refused_with_both_texts() -> None:
    with pytest.raises(TemplateError) as caught:
        compile_turns(templates.NUMBERED, {})
    assert "3. " in caught.value.got
    assert "2. " in caught.value.expected


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "</S>"),
        ("{{ messages[0].content }}", "nowhere"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "twice"),
        ("{% for m in messages %}<{{ m.content | replace('quoted', 'q') }}>{% endfor %}", "quoted"),
        ("{% for m in messages %}<{{ m.content | e }}>{% endfor %}", "&#34;"),
        ("{{ raise_exception('no thanks') }}", "no thanks"),
        ("{% for m in messages %}{{ m.nothing.there }}{% endfor %}", "UndefinedError"),
        ("{% for m in messages %}", "end of"),
        ("{{ strftime_now('%Y') }}{% for m in messages %}<{{ m.content }}>{% endfor %}", "today's date"),
    ],
)
def test_a_template_of_another_shape_is_refused(template: str, complaint: str) -> None:
    with pytest.raises(TemplateError, match=complaint):
        compile_turns(template, {})


def test_a_date_is_frozen() -> None:
    first = compile_turns(templates.LLAMA32, TOKENS, "2031-02-03").render([{"role": "user", "content": "hi"}])[0]
    assert "Today Date: 03 Feb 2031" in first.text
    with pytest.raises(TemplateError, match="year-month-day"):
        compile_turns(templates.LLAMA32, TOKENS, "3 Feb 2031")


def test_variables_reach_the_template() -> None:
    turns = compile_turns(templates.QWEN3, TOKENS, variables={"enable_thinking": False})
    assert turns.render([{"role": "user", "content": "hi"}], generate=True)[-1].text.endswith("</think>\n\n")


def test_the_template_of_a_model_folder_is_found(
    data_folder: Path, stories: Path, tmp_path: Path, qwen_template: str
) -> None:
    assert find_template(data_folder / "tokenizers" / "qwen2.5") == qwen_template
    assert find_template(stories) is None
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert find_template(tmp_path) == "b"
    (tmp_path / "chat_template.jinja").write_text("c")
    assert find_template(tmp_path) == "c"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(ModelError, match="tokenizer_config"):
        find_template(tmp_path)


def test_generation_blocks_are_rendered_as_they_stand() -> None:
    template = (
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
        "{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    text = "".join(p.text for p in compile_turns(template, TOKENS).render(messages))
    assert text == "<user>a</s><assistant>b</s>"


def test_turns_json_is_the_same_bytes_each_time_and_reads_back(qwen_template: str, qwen_turns: Turns) -> None:
    data = qwen_turns.to_bytes()
    assert compile_turns(qwen_template, {"eos_token": "<|im_end|>"}).to_bytes() == data
    assert Turns.from_bytes(data) == qwen_turns
    assert list(json.loads(data)) == ["endings", "glue", "trims"]


def _broken(data: dict[str, Any], how: str) -> dict[str, Any]:
    if how == "unknown":
        data["more"] = 1
    elif how == "twice":
        data["glue"].append(data["glue"][0])
    elif how == "type":
        data["glue"][0]["last"] = "false"
    elif how == "role":
        data["glue"][0]["next"] = "tool"
    elif how == "ending":
        data["endings"][0]["text"] = "nowhere"
    else:
        del data[how]
    return data


@pytest.mark.parametrize("how", ["unknown", "twice", "type", "role", "ending", "glue", "trims", "endings"])
def test_a_damaged_turns_json_is_refused(qwen_turns: Turns, how: str) -> None:
    with pytest.raises(BundleError, match=r"turns\.json"):
        Turns.from_bytes(json.dumps(_broken(json.loads(qwen_turns.to_bytes()), how)).encode())
    with pytest.raises(BundleError, match=r"turns\.json"):
        Turns.from_bytes(qwen_turns.to_bytes()[:-3])
    with pytest.raises(BundleError, match="bytes"):
        Turns.from_bytes(b" " * (2 << 20))


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], r"messages\[0\]"),
        ([{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}], r"messages\[1\]\.role"),
        ([{"role": "user", "content": ["b"]}], r"messages\[0\]\.content"),
        ([{"role": "user"}], r"messages\[0\]\.content"),
        ([{"role": "assistant", "content": None, "tool_calls": [{}]}], "tool call"),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "'system' after 'user'"),
    ],
)
def test_messages_that_cannot_be_rendered_are_named(qwen_turns: Turns, messages: Any, where: str) -> None:
    with pytest.raises(DataError, match=where):
        qwen_turns.render(messages)
