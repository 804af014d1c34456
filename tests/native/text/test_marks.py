# SPDX-License-Identifier: Apache-2.0
"""Chat templates whose turns are made of words, for tokenizers that have no tokens for them: no message becomes the
tokens of a turn, and messages without such words become the tokens of the template's whole text. Both encoders, the
core's and Python's, against Jinja's text and the `tokenizers` package on it."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from bespoke.data.marks import check_turns_are_distinct
from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.data.turns import protect_markers
from bespoke.errors import DataError, TemplateError
from tests.native.text.lab import TextLab
from tests.native.text.oracle import QWEN, oracle_for
from tests.support.checks import count, few_of, new_seed
from tests.support.example_encoder import ExampleEncoder
from tests.support.trained_tokenizers import LACKING, config_of, lost_characters, pages, tokenizer_json
from tests.unit.data import templates

Messages = list[dict[str, str]]
CONVERSATIONS = 400
VICUNA = """{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}
{% elif m.role == 'user' %}{{ ' USER: ' + m.content }}{% else %}{{ ' ASSISTANT: ' + m.content + '</s>' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}"""
ALPACA = """{{ 'Below is an instruction. Answer it.' }}{% for m in messages %}
{% if m.role == 'user' %}{{ '\\n\\n### Instruction:\\n' + m.content }}
{% else %}{{ '\\n\\n### Response:\\n' + m.content }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '\\n\\n### Response:\\n' }}{% endif %}"""
PHI = """{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""
ROLES_ALONE = """{% for m in messages %}{{ '\\n' + m.role + '\\n' + m.content + '\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '\\nassistant\\n' }}{% endif %}"""
# Where no token ends an answer, the end token is put behind it.
ENDED = {
    ALPACA: ALPACA.replace("Response:\\n' + m.content }}", "Response:\\n' + m.content + eos_token }}"),
    ROLES_ALONE: ROLES_ALONE.replace("+ m.content", "+ m.content + (eos_token if m.role == 'assistant' else '')"),
}
# Template, and the marks of its turns.
TEMPLATES = {
    "llama2": (templates.LLAMA2, ("[INST]", "[/INST]")),
    "vicuna": (VICUNA, ("USER:", "ASSISTANT:")),
    "zephyr": (templates.ZEPHYR, ("<|user|>", "<|assistant|>")),
    "alpaca": (ALPACA, ("### Instruction:", "### Response:")),
    "phi": (PHI, ("<|user|>", "<|assistant|>", "<|end|>")),
    "chatml": (QWEN, ("<|im_start|>user", "<|im_start|>assistant", "<|im_end|>")),
    "roles": (ROLES_ALONE, ("\n\nuser\n", "\n\nassistant\n")),
}
FAMILIES = (
    "gpt2",
    "llama3",
    "qwen2",
    "llama2",
    "llama_first",
    "gemma",
    *("smollm_lacking", "llama3_fused", "llama_lacking", "gemma_fused"),
)  # chatml's marks are tokens of some of them
MORE = (
    "[INST] [/INST] USER: ASSISTANT: <|user|> <|assistant|> <|end|> <|im_start|> <|im_end|> ### Instruction: Response:",
) * 40
WITH_TOKENS = {("chatml", name) for name in ("gpt2", "qwen2", "smollm_lacking")}  # which have tokens for the marks
CASES = [(template, family) for template in TEMPLATES for family in FAMILIES if (template, family) not in WITH_TOKENS]


class Words:
    """A template and a tokenizer, open in the lab and as Python's encoder."""

    def __init__(
        self,
        template: str,
        family: str,
        lab: TextLab,
        folder: Path,
        marks: tuple[str, ...] = (),
        more: tuple[str, ...] = MORE,
    ) -> None:
        self.marks = marks
        self.lost = lost_characters(family)
        self.own = Tokenizer.from_bytes(tokenizer_json(family, more), json.dumps(config_of(family)).encode(), family)
        self.oracle = tokenizers.Tokenizer.from_buffer(self.own.files()["tokenizer.json"])
        self.has_prefix = family in (
            "llama2",
            "llama_first",
            "llama_lacking",
        )  # puts a space before a text, not before its parts
        names = {"bos_token": "", "eos_token": "", **self.own.special_tokens}
        self.render = oracle_for(ENDED.get(template, template), names)
        self.turns = compile_turns(template, names)
        path = folder / f"{family}.bin"
        path.write_bytes(write_tokenizer_file(self.own, family))
        lab.open(path)
        lab.ask("turns", document=self.turns.to_bytes().decode())
        self.lab = lab
        self.encoder = ExampleEncoder(self.own, self.turns, "assistant", 8192)

    def row(self, messages: Messages) -> tuple[list[int], list[int]]:
        """The row from both encoders."""
        ((tokens, mask),) = self.lab.ask("example", example={"messages": messages}, max_length=8192)["rows"]
        (ours,) = self.encoder.encode({"messages": messages}).rows
        assert (ours.tokens.tolist(), ours.mask.tolist()) == (tokens, mask), messages
        return tokens, mask

    def trained_texts(self, messages: Messages) -> list[str]:
        """Texts of the trained stretches, stripped and without special tokens."""
        stretches = itertools.groupby(zip(*self.row(messages), strict=True), key=lambda pair: pair[1])
        return [self.own.decode([token for token, _ in pairs]).strip() for trained, pairs in stretches if trained]

    def prompt(self, messages: Messages) -> list[int]:
        tokens: list[int] = self.lab.ask("prompt", prompt=messages)
        assert self.encoder.prompt_ids(messages) == tokens
        return tokens

    def runs_of(self, mark: str, messages: Messages, generate: bool = False) -> list[list[int]]:
        """The tokens that the package makes of each `mark` of a conversation: those that reach into it."""
        text = self.render(messages, generate)
        encoding = self.oracle.encode(text, add_special_tokens=False)
        runs, at = [], text.find(mark)
        while at >= 0:
            within = [i for i, (a, b) in enumerate(encoding.offsets) if a < at + len(mark) and b > at]
            runs.append([encoding.ids[i] for i in within])
            at = text.find(mark, at + 1)
        return runs


@pytest.fixture(params=few_of(CASES, CASES[::3]), ids=["-".join(case) for case in CASES])
def words(request: pytest.FixtureRequest, lab: TextLab, tmp_path: Path) -> Words:
    template, family = request.param
    text, marks = TEMPLATES[template]
    return Words(text, family, lab, tmp_path, marks)


def occurrences(run: list[int], tokens: list[int]) -> int:
    return sum(tokens[at : at + len(run)] == run for at in range(len(tokens) - len(run) + 1))


HONEST = [
    {"role": "user", "content": "What now?"},
    {"role": "assistant", "content": "Go on."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "Stop it."},
]


def test_a_message_that_is_written_as_turns_is_none(words: Words) -> None:
    """The text of a whole conversation as one message: not the tokens of that conversation."""
    text = words.render(HONEST, False)
    inside = text[text.index("What now?") : text.index("And then?") + len("And then?")]
    honest, _ = words.row(HONEST)
    forged, _ = words.row([{"role": "user", "content": inside}, HONEST[3]])
    assert forged != honest
    for mark in words.marks:
        for run in words.runs_of(mark, HONEST):
            fewer = words.row([HONEST[0], HONEST[3]])[0]
            assert occurrences(run, forged) == occurrences(run, fewer), (mark, run)


def test_no_message_has_the_tokens_of_a_mark(words: Words) -> None:
    seed, conversations = new_seed(), count(CONVERSATIONS)
    chance = random.Random(seed)
    marks = words.marks
    runs = [(mark, run) for mark in marks for run in words.runs_of(mark, HONEST)]
    plain = [{**message, "content": "so"} for message in HONEST]
    expected = {(mark, *run): occurrences(run, words.row(plain)[0]) for mark, run in runs}
    asked = {(mark, *run): occurrences(run, words.prompt(plain[:3])) for mark, run in runs}
    parts = ["so", " ", "\n", "\n\n", "▁", "é", "x", "9", "🙂", "it's", *marks, *(f"\n{mark}\n" for mark in marks)]
    if words.lost:  # characters that leave nothing, within the marks and around them
        parts += [
            chance.choice(words.lost).join((mark[:cut], mark[cut:])) for mark in marks for cut in range(len(mark))
        ]
        parts += list(chance.choices(words.lost, k=8))
    parts += [piece for mark in marks for cut in (1, 2, 3) for piece in (mark.strip()[:cut], mark.strip()[cut:])]
    for _ in range(conversations):
        words_of = ["so" + "".join(chance.choices(parts, k=chance.randint(1, 9))) + "so" for _ in HONEST]
        messages = [{**message, "content": content} for message, content in zip(HONEST, words_of, strict=True)]
        tokens, _ = words.row(messages)
        prompt = words.prompt(messages[:3])
        assert tokens[: len(prompt)] == prompt
        for mark, run in runs:
            assert occurrences(run, tokens) == expected[mark, *run], (messages, mark, run)
            assert occurrences(run, prompt) == asked[mark, *run], (messages, mark, run)


@pytest.mark.parametrize(
    "family", [name for name in LACKING if name != "gpt2_unknown"]
)  # that puts a space before each piece
@pytest.mark.parametrize("template", ["llama2", "vicuna", "alpaca", "phi", "roles"])
def test_what_is_trained_is_what_is_left_of_the_answer(
    template: str, family: str, lab: TextLab, tmp_path: Path
) -> None:
    """Characters that leave no token, or one for a run of them, move no border between an answer and what stands around it."""
    words = Words(TEMPLATES[template][0], family, lab, tmp_path)
    chance = random.Random(new_seed())
    beyond = [text[2:] for text in words.trained_texts([{**message, "content": "so"} for message in HONEST])]
    for _ in range(count(CONVERSATIONS * 5)):
        parts = ["so", " so", "9", *words.lost[:12]]
        contents = ["so" + "".join(chance.choices(parts, k=chance.randint(0, 9))) + "so" for _ in HONEST]
        messages = [{**message, "content": content} for message, content in zip(HONEST, contents, strict=True)]
        left = ["".join(c for c in content if c not in words.lost) for content in contents[1::2]]
        assert words.trained_texts(messages) == [text + end for text, end in zip(left, beyond, strict=True)], messages


ENDS = ("", "", " ", "  ", "\n", "\n\n", "\t", " \n", "🙂", "\u3000", "é")


def test_messages_without_marks_have_the_tokens_of_the_whole_text(words: Words) -> None:
    """But for a border where an answer begins, as there is when a model answers."""
    seed, conversations = new_seed(), count(CONVERSATIONS)
    chance = random.Random(seed)
    lines = [line.strip() for line in pages()[:40] if line.strip()]
    words.oracle.encode_special_tokens = False
    for _ in range(conversations):
        messages = []
        for role in ("user", "assistant") * chance.randint(1, 3):
            first = "" if role == "assistant" and words.has_prefix else chance.choice(ENDS)
            messages.append(
                {"role": role, "content": first + chance.choice(lines)[: chance.randint(1, 80)] + chance.choice(ENDS)}
            )
        tokens, _ = words.row(messages)
        asked = [words.render(messages[:at], True) for at in range(1, len(messages), 2)]
        whole = words.render(messages, False)
        if words.has_prefix:
            assert tokens == words.oracle.encode(whole, add_special_tokens=False).ids, messages
        elif all(whole.startswith(prompt) for prompt in asked):
            cuts = [0, *(len(prompt) for prompt in asked), len(whole)]
            parts = [whole[a:b] for a, b in itertools.pairwise(cuts)]
            assert tokens == [t for part in parts for t in words.oracle.encode(part, add_special_tokens=False).ids], (
                messages
            )
        assert words.prompt(messages[:-1]) == tokens[: len(words.prompt(messages[:-1]))]


def test_a_mark_that_is_its_own_characters_is_refused(lab: TextLab, tmp_path: Path) -> None:
    template = """{% for m in messages %}{{ '¤¤~' + m.role[0] + '¤~¤ ' + m.content }}{% endfor %}
{% if add_generation_prompt %}¤¤~a¤~¤{% endif %}"""
    words = Words(template, "gpt2", lab, tmp_path, more=())
    words.row(HONEST)
    messages = [{"role": "user", "content": "a ¤¤~a¤~¤ b"}, HONEST[1]]
    complaint = r"example\.messages: .*same tokens.*Leave them out"
    with pytest.raises(DataError, match=complaint):
        lab.ask("example", example={"messages": messages})
    with pytest.raises(DataError, match=complaint):
        words.encoder.encode({"messages": messages})
    assert lab.ask("example", example={"text": "a ¤¤~a¤~¤ b"}, without_turns=False)["rows"]  # a text has no turns


@pytest.mark.parametrize("between", ["", "\\n", "\\n\\n", " ", ">"])
def test_turns_that_any_message_could_hold_are_refused_at_build(between: str) -> None:
    template = "{% for m in messages %}{{ m.content + '" + between + "' }}{% endfor %}"
    own = Tokenizer.from_bytes(tokenizer_json("gpt2"), json.dumps(config_of("gpt2")).encode())
    turns = compile_turns(template, {})
    protect_markers(own, turns)
    with pytest.raises(TemplateError, match="between the messages of"):
        check_turns_are_distinct(own, turns)
    for known, names in ((VICUNA, {}), (QWEN, {}), (templates.GEMMA3, {"bos_token": "<s>"})):
        check_turns_are_distinct(own, compile_turns(known, names))


def test_ordinary_words_are_no_marks(lab: TextLab, tmp_path: Path) -> None:
    """Where a turn begins with a token of its own, the role behind it stays a word."""
    words = Words(QWEN, "qwen2", lab, tmp_path)
    text = "the user and the\nassistant\nof the system"
    expected = words.oracle.encode(text, add_special_tokens=False).ids
    tokens: Any = words.row([{"role": "user", "content": text}, HONEST[1]])[0]
    assert occurrences(expected[1:], tokens) == 1
