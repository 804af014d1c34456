# SPDX-License-Identifier: Apache-2.0
"""Turns and loss masks of the core, against the chat template in Jinja and the `tokenizers` package on its text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from bespoke.data.template import compile_turns
from bespoke.errors import BundleError, DataError
from tests.native.text.lab import TextLab
from tests.native.text.oracle import QWEN, Messages, oracle_for
from tests.support.checks import count, new_seed
from tests.support.tokenizer_families import REAL, Family
from tests.support.trained_tokenizers import pages
from tests.unit.data import templates

CONVERSATIONS = 2_000
# Its turn begins with an added token that is not special.
PLAIN_MARKER = """{% for m in messages %}{{ '<tool_call>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}
{% if add_generation_prompt %}{{ '<tool_call>assistant\\n' }}{% endif %}"""
WITHOUT_SYSTEM = """{% for m in messages %}
{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"""
# Template, tokenizer, how a turn ends, whether the template strips contents, whether borders between pieces are borders of tokens.
FAMILIES = {
    "qwen2.5": ("", "qwen2.5", "<|im_end|>", False, True),  # its own template, out of the test data
    "qwen": (QWEN, "qwen2", "<|im_end|>", False, True),
    "llama3": (templates.LLAMA32, "llama3", "<|eot_id|>", True, True),
    "gemma": (templates.GEMMA3, "gemma", "<end_of_turn>", True, True),
    "zephyr": (templates.ZEPHYR, "llama2", "</s>", False, True),
}


class Chat:
    """A family's template: as Jinja renders it, and open in the lab as turns."""

    def __init__(self, name: str, lab: TextLab, family_of: Callable[[str], Family], template: str = "") -> None:
        known, tokenizer, self.ending, self.strips, self.exact = FAMILIES[name]
        template = template or known
        self.lab, self.family = lab, family_of(tokenizer)
        tokens = {"bos_token": "<s>", "eos_token": "</s>", **self.family.special_tokens}
        self.render = oracle_for(template, tokens)
        self.document = compile_turns(template, tokens, "2024-07-26").to_bytes().decode()
        lab.open(self.family.path)
        lab.ask("turns", document=self.document)

    def spans(self, messages: Messages) -> list[tuple[int, int, str, bool]]:
        """Where each content and ending stands in the rendered text: first character, end, role, whether it is content."""
        marks = [f"\u2402{number}\u2403" for number in range(len(messages))]
        text = self.render([{**m, "content": mark} for m, mark in zip(messages, marks, strict=True)], False)
        found, shift = [], 0
        for mark, message in zip(marks, messages, strict=True):
            content = message["content"].strip() if self.strips else message["content"]
            at = text.index(mark) + shift
            shift += len(content) - len(mark)
            found.append((at, at + len(content), message["role"], True))
            if text.startswith(self.ending, text.index(mark) + len(mark)):
                found.append((at + len(content), at + len(content) + len(self.ending), message["role"], False))
        return found

    def expected(self, messages: Messages, train_on: str) -> tuple[list[int], list[int]]:
        """Tokens and mask of the whole text."""
        text, spans = self.render(messages, False), self.spans(messages)
        self.family.oracle.encode_special_tokens = False
        encoding = self.family.oracle.encode(text, add_special_tokens=False)
        trained = [(a, b) for a, b, role, _ in spans if train_on in ("all", role)]
        mask = [
            int(any(a <= first and last <= b and first < last for a, b in trained)) for first, last in encoding.offsets
        ]
        return encoding.ids, mask


@pytest.fixture(params=FAMILIES)
def chat(request: pytest.FixtureRequest, lab: TextLab, family_of: Callable[[str], Family]) -> Chat:
    template = ""
    if request.param == "qwen2.5":
        folder = request.getfixturevalue("data_folder")
        template = json.loads((folder / REAL["qwen2.5"] / "tokenizer_config.json").read_text())["chat_template"]
    return Chat(request.param, lab, family_of, template)


def conversation(chance: random.Random, strips: bool) -> Messages:
    """`strips`: of a template that strips contents, though not each one that of the system."""
    lines = [line.strip() for line in pages()[:40]]
    messages = (
        [{"role": "system", "content": "Be brief." if strips else "  Be brief.\n"}] if chance.random() < 0.5 else []
    )
    for _ in range(chance.randint(1, 4)):
        question = chance.choice(lines)[: chance.randint(1, 200)] + chance.choice(["", " ", "\n", "\u3000", "é"])
        # Newlines that stay before an answer would become one token with the template's own.
        answer = chance.choice(["", " ", "\n\n" if strips else "  "]) + chance.choice(lines)[: chance.randint(1, 200)]
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def test_rendered_turns_are_the_templates_own_text(chat: Chat) -> None:
    seed, conversations = new_seed(), count(CONVERSATIONS)
    chance = random.Random(seed)
    for _ in range(conversations):
        messages = conversation(chance, chance.random() < 0.5)
        for given, generate in ((messages, False), (messages[:-1], True), (messages[:-1], False)):
            assert chat.lab.ask("render", messages=given, generate=generate) == chat.render(given, generate)


@pytest.mark.parametrize("train_on", ["assistant", "user", "all"])
def test_tokens_and_mask_are_those_of_the_whole_text(chat: Chat, train_on: str) -> None:
    seed, conversations = new_seed(), count(CONVERSATIONS)
    chance = random.Random(seed)
    for _ in range(conversations):
        messages = conversation(chance, chat.strips)
        encoded = chat.lab.ask("example", example={"messages": messages}, train_on=train_on, max_length=4096)
        ((tokens, mask),) = encoded["rows"]
        if chat.exact:
            assert (tokens, mask) == chat.expected(messages, train_on)
            prompt = chat.render(messages[:-1], True)
            assert chat.lab.ask("prompt", prompt=messages[:-1]) == chat.family.tokens(prompt, template=True)
        text = chat.render(messages, False)
        trained = "".join(text[a:b] for a, b, role, _ in chat.spans(messages) if train_on in ("all", role))
        ours = chat.family.oracle.decode([t for t, m in zip(tokens, mask, strict=True) if m], skip_special_tokens=False)
        assert ours == chat.family.without_stripped(trained)
        assert encoded["trained_tokens"] == sum(mask)
        assert (encoded["tokens"], encoded["truncated_tokens"], encoded["windows"]) == (len(tokens), 0, 1)
    chat.family.record(f"masks of {train_on}", {"conversations": conversations}, seed)


def test_a_message_cannot_forge_a_turn(chat: Chat) -> None:
    (closing,) = chat.family.tokens(chat.ending, template=True)[-1:]
    forged = f"ok{chat.ending}\n" + "".join(chat.family.added.values())
    messages = [{"role": "user", "content": forged}, {"role": "assistant", "content": forged}]
    ((tokens, _),) = chat.lab.ask("example", example={"messages": messages}, max_length=4096)["rows"]
    honest = [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "ok"}]
    assert tokens.count(closing) == chat.family.tokens(chat.render(honest, False), template=True).count(closing)
    assert chat.lab.ask("stops") == sorted({closing, *([chat.family.eos] if chat.family.eos is not None else [])})


def test_turn_markers_that_are_not_special_cannot_be_forged_either(
    lab: TextLab, family_of: Callable[[str], Family]
) -> None:
    family = family_of("qwen2")
    lab.open(family.path)
    tool = next(token for token, text in family.added.items() if text == "<tool_call>")
    assert tool in lab.encode(["a <tool_call> b"])[0]
    lab.ask("turns", document=compile_turns(PLAIN_MARKER, {}).to_bytes().decode())
    assert tool not in lab.encode(["a <tool_call> b"])[0]
    assert tool in lab.encode(["a <tool_call> b"], template=True)[0]


REFUSED: list[tuple[Any, str]] = [
    ([], "got an empty list"),
    ("hello", "got text"),
    ([3], r"\[0\]: got a number"),
    ([{"role": "tool", "content": "x"}], r"\[0\]\.role: got 'tool'; expected one of system, user, assistant"),
    ([{"role": "user"}], r"\[0\]\.content: got nothing"),
    ([{"role": "user", "content": ["x"]}], r"content: got a list"),
    ([{"role": "user", "content": "x", "tool_calls": [{}]}], "got a tool call"),
    (
        [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}],
        "'system' after 'user'.*after 'user' one of",
    ),
]


@pytest.mark.parametrize(("messages", "complaint"), REFUSED)
def test_what_is_no_conversation_is_refused(
    lab: TextLab, family_of: Callable[[str], Family], messages: Any, complaint: str
) -> None:
    chat = Chat("gemma", lab, family_of)
    with pytest.raises(DataError, match=complaint):
        chat.lab.ask("example", example={"messages": messages})


def test_an_order_that_the_template_lacks_is_refused(lab: TextLab, family_of: Callable[[str], Family]) -> None:
    chat = Chat("gemma", lab, family_of)
    twice = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(RuntimeError):
        chat.render(twice, False)
    with pytest.raises(DataError, match="Join neighbouring user messages into one"):
        chat.lab.ask("example", example={"messages": twice})
    lab.ask("turns", document=compile_turns(WITHOUT_SYSTEM, {}).to_bytes().decode())
    with pytest.raises(DataError, match="takes no system message"):
        chat.lab.ask("example", example={"messages": [{"role": "system", "content": "a"}, *twice[:1]]})


def test_an_example_without_the_trained_role_is_refused_with_a_hint(chat: Chat) -> None:
    with pytest.raises(DataError, match="train_on='user' or 'all'") as caught:
        chat.lab.ask("example", example={"messages": [{"role": "user", "content": "I live in Ulm."}]}, subject="row 3")
    assert caught.value.subject == "row 3"
    silent = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    with pytest.raises(DataError, match="without words"):
        chat.lab.ask("example", example={"messages": silent})


def broken(document: dict[str, Any]) -> list[dict[str, Any]]:
    glue, endings = document["glue"], document["endings"]
    return [
        {**document, "glue": glue[::-1]},
        {**document, "glue": [*glue, glue[-1]]},
        {**document, "glue": [{**glue[0], "next": "tool"}, *glue[1:]]},
        {**document, "glue": [{**glue[0], "last": 1}, *glue[1:]]},
        {**document, "glue": [{**glue[0], "text": None}, *glue[1:]]},
        {**document, "glue": [{**glue[0], "more": 1}, *glue[1:]]},
        {**document, "endings": [{**endings[0], "text": "#" + endings[0]["text"]}, *endings[1:]]},
        {**document, "endings": [{**endings[0], "role": "start"}, *endings[1:]]},
        {**document, "trims": {}},
        {**document, "more": []},
        {key: document[key] for key in ("glue", "trims")},
        {**document, "glue": 3},
    ]


def test_a_damaged_turns_file_is_refused(chat: Chat) -> None:
    document = json.loads(chat.document)
    for wrong in broken(document):
        with pytest.raises(BundleError, match=r"turns\.json"):
            chat.lab.ask("turns", document=json.dumps(wrong))
    for text in ("", "[]", "{", chat.document[:-9], " " * (1 << 20) + chat.document):
        with pytest.raises(BundleError, match=r"turns\.json"):
            chat.lab.ask("turns", document=text)
