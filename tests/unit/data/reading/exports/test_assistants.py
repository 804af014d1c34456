# SPDX-License-Identifier: Apache-2.0
"""Exports of ChatGPT, a tree of messages, and of Claude, a list: what the app shows is what is read."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import ReadReport, read_examples
from bespoke.data.reading.exports.kinds import read_export
from bespoke.errors import ConfigError, DataError


def read(path: Path, kind: Any, document: Any) -> tuple[list[dict[str, Any]], Counter[str]]:
    path.write_text(json.dumps(document), encoding="utf-8")
    left_out: Counter[str] = Counter()
    return [one for _, one in read_export(path, kind, None, left_out)], +left_out


def talk(*texts: str) -> dict[str, Any]:
    return {
        "messages": [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    }


def node(role: str, parts: list[Any], kind: str = "text", **more: Any) -> dict[str, Any]:
    return {
        "author": {"role": role},
        "content": {"content_type": kind, "parts": parts},
        "weight": 1.0,
        "recipient": "all",
        **more,
    }


def chain(*messages: dict[str, Any] | None) -> dict[str, Any]:
    """A conversation without branches."""
    mapping = {
        str(i): {
            "id": str(i),
            "parent": str(i - 1) if i else None,
            "children": [str(i + 1)] if i + 1 < len(messages) else [],
            "message": one,
        }
        for i, one in enumerate(messages)
    }
    return {"title": "x", "mapping": mapping, "current_node": str(len(messages) - 1)}


LEFT_OUT = [
    (node("system", [""]), "messages of system"),
    (node("tool", ["42"]), "messages of tool"),
    (node("user", ["About me"], metadata={"is_visually_hidden_from_conversation": True}), "hidden messages"),
    (node("assistant", ["x"], weight=0.0), "hidden messages"),
    (node("assistant", ['{"prompt": "boat"}'], recipient="dalle.text2im"), "calls of tools and thoughts"),
    (
        {"author": {"role": "assistant"}, "content": {"content_type": "code", "text": "print(1)"}},
        "calls of tools and thoughts",
    ),
    (
        {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": []}},
        "calls of tools and thoughts",
    ),
    (node("user", [{"content_type": "image_asset_pointer"}], "multimodal_text"), "images and other files"),
]


@pytest.mark.parametrize(("message", "what"), LEFT_OUT)
def test_what_chatgpt_does_not_show_is_left_out_and_counted(tmp_path: Path, message: dict[str, Any], what: str) -> None:
    document = chain(None, node("user", ["Where?"]), message, node("assistant", ["Here."]))
    found, left_out = read(tmp_path / "conversations.json", "chatgpt", [document])
    assert found == [talk("Where?", "Here.")]
    assert left_out[what] == 1


def test_words_next_to_an_image_stay_and_neighbours_are_one_turn(tmp_path: Path) -> None:
    picture = node("user", [{"content_type": "image_asset_pointer"}, "What is this?"], "multimodal_text")
    document = chain(None, picture, node("assistant", ["A "]), node("assistant", ["boat."]))
    assert read(tmp_path / "a.json", "chatgpt", [document])[0] == [talk("What is this?", "A \nboat.")]


@pytest.mark.parametrize("seed", range(20))
def test_of_a_tree_the_shown_branch_is_read(tmp_path: Path, seed: int) -> None:
    """Random trees, the shown branch chosen at random and read on the way down."""
    chance = random.Random(seed)
    mapping: dict[str, Any] = {"0": {"parent": None, "children": [], "message": None}}
    depth = {"0": 0}
    for number in range(1, 40):
        name, parent = str(number), chance.choice(list(depth))
        role = ("assistant", "user")[(depth[parent] + 1) % 2]
        mapping[name] = {"parent": parent, "children": [], "message": node(role, [f"text {name}"])}
        mapping[parent]["children"].append(name)
        depth[name] = depth[parent] + 1
    leaf = chance.choice([name for name in depth if depth[name] >= 2])
    shown: list[str] = []

    def walk(name: str, above: list[str]) -> None:
        if name == leaf:
            shown.extend([*above, name])
        for child in mapping[name]["children"]:
            walk(child, [*above, name])

    walk("0", [])
    names = list(mapping)
    chance.shuffle(names)  # the order in the file says nothing
    document = {"mapping": {name: mapping[name] for name in names}, "current_node": leaf}
    found, left_out = read(tmp_path / "a.json", "chatgpt", [document])
    assert found == [talk(*(f"text {name}" for name in shown[1:]))]
    assert left_out["messages of branches that were edited away"] == 40 - len(shown)


def test_a_tree_without_a_shown_branch_or_with_a_circle_ends(tmp_path: Path) -> None:
    document = chain(None, node("user", ["Where?"]), node("assistant", ["Here."]))
    for last in (None, "gone", 3):
        assert read(tmp_path / "a.json", "chatgpt", [{**document, "current_node": last}])[0] == [
            talk("Where?", "Here.")
        ]
    document["mapping"]["0"]["parent"] = "2"
    document["mapping"]["2"]["children"] = ["0"]
    assert read(tmp_path / "a.json", "chatgpt", [{**document, "current_node": "2"}])[0] == [talk("Where?", "Here.")]
    with pytest.raises(DataError, match="no conversation"):  # no node is the root
        read(tmp_path / "a.json", "chatgpt", [{**document, "current_node": None}])


def test_claude_is_read_from_text_and_from_blocks(tmp_path: Path) -> None:
    old = [{"sender": "human", "text": "Where?", "attachments": []}, {"sender": "assistant", "text": "Here."}]
    asked = {"sender": "human", "text": "Where?", "content": [{"type": "text", "text": "Where?"}]}
    blocks = [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Here."}, {"type": "tool_use"}]
    new = [
        {**asked, "attachments": [{"file_name": "a"}], "files": [{}]},
        {"sender": "assistant", "text": "not shown", "content": blocks},
        {"sender": "human", "text": "", "content": []},
    ]
    found, left_out = read(
        tmp_path / "a.json", "claude", [{"uuid": "1", "chat_messages": old}, {"uuid": "2", "chat_messages": new}]
    )
    assert found == [talk("Where?", "Here.")] * 2
    assert left_out == {"images and other files": 2, "calls of tools and thoughts": 2, "messages without words": 1}


@pytest.mark.parametrize("kind", ["chatgpt", "claude"])
@pytest.mark.parametrize(
    "document", [{}, [3], [{"mapping": 3, "chat_messages": 3}], 3, [{"mapping": {"a": 3}, "chat_messages": [3]}]]
)
def test_what_is_no_export_is_refused(tmp_path: Path, kind: str, document: Any) -> None:
    with pytest.raises(DataError):
        read(tmp_path / "a.json", kind, document)


@pytest.mark.parametrize(
    ("kind", "name", "document"),
    [
        ("chatgpt", "ChatGPT", [chain(None, node("user", ["Where?"]), node("assistant", ["Here."]))]),
        (
            "claude",
            "Claude",
            [{"chat_messages": [{"sender": "human", "text": "Where?"}, {"sender": "assistant", "text": "Here."}]}],
        ),
    ],
)
def test_an_export_is_named_when_given_as_examples_and_read_when_asked_for(
    tmp_path: Path, kind: Any, name: str, document: Any
) -> None:
    path = tmp_path / "conversations.json"
    for indent in (None, 2):
        path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
        with pytest.raises(
            DataError, match=rf"an export of {name}.*bespoke read conversations\.json --as {kind} --out"
        ):
            list(read_examples(path))
        report = ReadReport()
        assert list(read_examples(path, kind, report=report)) == [(1, talk("Where?", "Here."))]
        assert (report.format, report.rows) == ("messages", 1)
    with pytest.raises(ConfigError, match="says who the user and who the assistant is"):
        list(read_export(path, kind, "Me", Counter()))


def test_half_a_surrogate_pair_of_an_export_is_no_crash(tmp_path: Path) -> None:
    found, _ = read(
        tmp_path / "a.json",
        "claude",
        [{"chat_messages": [{"sender": "human", "text": "\ud83d"}, {"sender": "assistant", "text": "b"}]}],
    )
    assert len(found) == 1
