# SPDX-License-Identifier: Apache-2.0
"""What a message may say, by both encoders: weights, parts, roles of other formats, calls of tools, and keys that nothing uses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native.text.both import ALL, GIVEN, Both
from tests.native.text.lab import TextLab
from tests.support.example_encoder import ExampleEncoder

USER, ASSISTANT = (
    {"role": "user", "content": "Where is the key?"},
    {"role": "assistant", "content": "Under the blue pot."},
)
RUDE: dict[str, Any] = {"role": "assistant", "content": "I hate you.", "weight": 0}
KIND = {"role": "user", "content": "Please be kind."}


@pytest.fixture
def both(lab: TextLab, tmp_path: Any) -> Both:
    return Both(lab, *GIVEN["qwen"], tmp_path)


def unused(both: Both, example: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = both.lab.ask("example", example=example, max_length=ALL)["unused_keys"]
    assert ExampleEncoder(both.own, both.turns, "assistant", ALL).encode(example).unused_keys == found
    return found


def trained_words(both: Both, messages: list[dict[str, Any]], train_on: str = "assistant") -> str:
    tokens, mask, *_ = both.encode({"messages": messages}, train_on, ALL)
    return both.own.decode([token for token, trained in zip(tokens, mask, strict=True) if trained], skip_special=False)


@pytest.mark.parametrize(
    "example",
    [
        {"text": "Once upon a time"},
        {"text": "Once upon", "end": "none"},
        {"prompt": "Where?", "completion": "Under the pot."},
        {"prompt": "Once upon", "completion": " a time", "as": "text"},
    ],
)
def test_ends_and_pairs_are_the_same_in_both(both: Both, example: dict[str, Any]) -> None:
    both.encode(example, "assistant", ALL)
    assert unused(both, example) == {}


@pytest.mark.parametrize(
    ("name", "example"), [("end", {"text": "a", "end": "x"}), ("as", {"prompt": "a", "completion": "b", "as": "x"})]
)
def test_another_word_for_an_end_or_a_form_is_refused(both: Both, name: str, example: dict[str, Any]) -> None:
    assert both.refusal(example).subject == f"example.{name}"


@pytest.mark.parametrize("weight", [0, 0.0, False])
def test_a_message_of_weight_0_is_context_with_its_ending(both: Both, weight: Any) -> None:
    messages = [USER, {**RUDE, "weight": weight}, KIND, {**ASSISTANT, "weight": 1}]
    plain = [{"role": m["role"], "content": m["content"]} for m in messages]
    assert trained_words(both, messages) == "Under the blue pot.<|im_end|>"
    assert trained_words(both, plain) == "I hate you.<|im_end|>Under the blue pot.<|im_end|>"
    assert (
        both.encode({"messages": messages}, "assistant", ALL)[0]
        == both.encode({"messages": plain}, "assistant", ALL)[0]
    )
    assert trained_words(both, [USER, {**KIND, "weight": weight}, ASSISTANT], "user") == "Where is the key?<|im_end|>"


@pytest.mark.parametrize("weight", [1, 1.0, True, None])
def test_weight_1_is_as_no_weight(both: Both, weight: Any) -> None:
    assert trained_words(both, [USER, {**ASSISTANT, "weight": weight}]) == "Under the blue pot.<|im_end|>"
    assert unused(both, {"messages": [USER, {**ASSISTANT, "weight": weight}]}) == {}


@pytest.mark.parametrize(
    ("weight", "got"),
    [(0.5, "0.5"), (2, "2"), (-1, "-1"), ("0", "'0'"), ("high", "'high'"), ([0], "a list"), ({}, "an object")],
)
def test_another_weight_is_refused(both: Both, weight: Any, got: str) -> None:
    refused = both.refusal({"messages": [USER, {**ASSISTANT, "weight": weight}]})
    assert (refused.subject, refused.got, refused.expected) == ("example.messages[1].weight", got, "0 or 1")


def test_where_every_answer_has_weight_0_the_reason_is_the_weight(both: Both) -> None:
    refused = both.refusal({"messages": [USER, RUDE]})
    assert refused.got == "weight 0 for every message with words that would be trained on"
    assert "weight 1" in refused.next_step
    assert "train_on='user' or 'all'" in both.refusal({"messages": [USER]}).next_step


def test_parts_of_text_are_joined_with_nothing_between(both: Both) -> None:
    parts = [{"type": "text", "text": "Where is"}, {"type": "text", "text": " the key?"}]
    split = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": [{"type": "text", "text": ASSISTANT["content"]}]},
    ]
    assert both.encode({"messages": split}, "assistant", ALL) == both.encode(
        {"messages": [USER, ASSISTANT]}, "assistant", ALL
    )
    asked = both.lab.ask("prompt", prompt=split[:1])
    assert asked == both.lab.ask("prompt", prompt=[USER]) == both.lab.ask("prompt", prompt=[{**USER, "weight": 0}])
    assert ExampleEncoder(both.own, both.turns).prompt_ids(split[:1]) == asked


@pytest.mark.parametrize(
    ("content", "where", "got"),
    [
        ([], "content", "an empty list"),
        (["Where is the key?"], "content", "a list that holds text"),
        ([None], "content", "a list that holds nothing"),
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}],
            "content[1]",
            "a part of type 'image_url'",
        ),
        ([{"type": "input_audio", "input_audio": {}}], "content[0]", "a part of type 'input_audio'"),
        ([{"text": "Where is the key?"}], "content[0]", "a part without a type"),
        ([{"type": ["text"], "text": "a"}], "content[0]", "a part of type a list"),
        ([{"type": "text", "text": 3}], "content[0].text", "a number"),
        ([{"type": "text"}], "content[0].text", "nothing"),
        ({"type": "text", "text": "a"}, "content", "an object"),
        (None, "content", "nothing"),
    ],
)
def test_other_contents_are_refused_by_name(both: Both, content: Any, where: str, got: str) -> None:
    refused = both.refusal({"messages": [{"role": "user", "content": content}, ASSISTANT]})
    assert (refused.subject, refused.got) == (f"example.messages[0].{where}", got)


@pytest.mark.parametrize(
    ("role", "next_step"),
    [
        *((name, "Call this role user") for name in ("human", "Human", "User", "person")),
        *(
            (name, "Call this role assistant")
            for name in ("gpt", "bot", "model", "ai", "chatgpt", "chatbot", "ASSISTANT")
        ),
        ("System", "Call this role system"),
        *((name, "Write what it answered into a message of the user") for name in ("tool", "function")),
        *((name, "Rename or leave out this message") for name in ("narrator", "", 3, None, True, ["user"])),
    ],
)
def test_a_role_of_another_format_is_refused_with_the_name_that_it_has_here(
    both: Both, role: Any, next_step: str
) -> None:
    refused = both.refusal({"messages": [USER, ASSISTANT, {"role": role, "content": "sun"}, ASSISTANT]})
    assert (refused.subject, refused.expected) == ("example.messages[2].role", "one of system, user, assistant")
    assert refused.next_step.startswith(next_step)


def test_developer_is_another_name_for_system(both: Both) -> None:
    brief = {"role": "system", "content": "Be brief."}
    developer = {**brief, "role": "developer"}
    assert both.encode({"messages": [developer, USER, ASSISTANT]}, "assistant", ALL) == both.encode(
        {"messages": [brief, USER, ASSISTANT]}, "assistant", ALL
    )
    refused = both.refusal({"messages": [brief, developer, USER, ASSISTANT]})
    assert refused.got == "a message of the system and one of the developer"
    assert refused.next_step == "Join them into one system message"


@pytest.mark.parametrize("call", [{"tool_calls": [{"id": "1"}]}, {"function_call": {"name": "w", "arguments": "{}"}}])
def test_a_call_of_a_tool_is_named_and_not_its_empty_content(both: Both, call: dict[str, Any]) -> None:
    refused = both.refusal({"messages": [USER, {"role": "assistant", "content": None, **call}]})
    assert (refused.subject, refused.got) == ("example.messages[1]", "a tool call")
    assert "as the model shall write it" in refused.next_step
    nothing = dict.fromkeys(call)
    assert unused(both, {"messages": [USER, {**ASSISTANT, **nothing}]}) == {}


def test_two_users_in_a_row_are_to_be_joined_where_the_template_refuses_them(lab: TextLab, tmp_path: Any) -> None:
    both = Both(lab, *GIVEN["llama2"], tmp_path)
    refused = both.refusal({"messages": [USER, KIND, ASSISTANT]})
    assert refused.got == "the roles user user assistant: 'user' after 'user'"
    assert refused.next_step == "Join neighbouring user messages into one"
    long = both.refusal({"messages": [*([USER, ASSISTANT] * 10_000), USER, *([USER, ASSISTANT] * 10_000)]})
    assert long.got == f"the roles ... {'user assistant ' * 5}user user ...: 'user' after 'user'"


def test_keys_that_nothing_uses_are_counted(both: Both) -> None:
    named = {**USER, "name": "Nell"}
    thinking = {**ASSISTANT, "reasoning_content": "...", "content": [{"type": "text", "text": "a", "annotations": []}]}
    example = {"messages": [named, thinking, named, ASSISTANT], "tools": [], "id": 7}
    assert unused(both, example) == {
        "id": 1,
        "messages.content.annotations": 1,
        "messages.name": 2,
        "messages.reasoning_content": 1,
        "tools": 1,
    }
    for other in (
        {"text": "Hello there"},
        {"prompt": "a", "completion": " b"},
        {"tokens": [5, 6, 7], "mask": [1, 1, 1]},
    ):
        assert unused(both, other) == {}
        assert unused(both, {**other, "messages.name": "x", "source": 3}) == {"messages.name": 1, "source": 1}


def test_what_is_said_of_unused_keys_is_bounded(both: Both) -> None:
    long = "\u00e9" * 3000
    example: dict[str, Any] = {"messages": [{**USER, "name": "a"}, {**ASSISTANT, "name": "b"}], long: 1}
    assert unused(both, example) == {"messages.name": 2, "\u00e9" * 64 + "...": 1}
    found = unused(both, {**example, **{f"key {number:06}": number for number in range(100_000)}})
    assert len(found) == 33
    assert found["messages.name"] == 2  # the most frequent first, then by name
    assert sorted(found)[:3] == ["...", "key 000000", "key 000001"]
    assert sum(found.values()) == 100_003


@pytest.mark.parametrize("template", ["qwen", "zephyr"])
def test_a_preference_may_stand_behind_a_chat(lab: TextLab, template: str, tmp_path: Any) -> None:
    """Each answer has the row of the same chat of which the last answer alone is trained on, up to the end of that answer."""
    Both(lab, *GIVEN[template], tmp_path)
    before = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Where is the key?"},
        {"role": "assistant", "content": "Which one?"},
        {"role": "user", "content": "The red one."},
    ]
    example = {"prompt": before, "chosen": "Under the pot.", "rejected": "I do not know, sorry."}
    encoded = lab.ask("example", example=example)
    ((tokens, mask, rejected, rejected_mask),) = encoded["rows"]
    context = [{**message, "weight": 0} for message in before]
    for answer, row, trained in (("Under the pot.", tokens, mask), ("I do not know, sorry.", rejected, rejected_mask)):
        alone = lab.ask("example", example={"messages": [*context, {"role": "assistant", "content": answer}]})
        ((alone_row, alone_mask),) = alone["rows"]
        assert (alone_row[: len(row)], alone_mask[: len(row)]) == (row, trained)
        assert not any(alone_mask[len(row) :])
    assert encoded["unused_keys"] == {}
    only_question = lab.ask("example", example={**example, "prompt": before[1:2]})
    assert only_question["rows"] == lab.ask("example", example={**example, "prompt": "Where is the key?"})["rows"]
