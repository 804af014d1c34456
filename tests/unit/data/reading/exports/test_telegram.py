# SPDX-License-Identifier: Apache-2.0
"""Exports of Telegram Desktop: of one chat and of all, texts and parts of texts, and what is not said by anybody."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import read_examples
from bespoke.data.reading.exports.kinds import read_export
from bespoke.errors import ConfigError, DataError


def message(writer: str | None, text: Any, at: str = "2024-05-01T10:00:00", **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "type": "message",
        "date": at,
        "from": writer,
        "from_id": "user1",
        "text": text,
        "text_entities": [],
        **more,
    }


def read(path: Path, document: Any, me: str | None = "Me") -> tuple[list[dict[str, Any]], Counter[str]]:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    left_out: Counter[str] = Counter()
    return [one for _, one in read_export(path, "telegram", me, left_out)], +left_out


def chat(*messages: dict[str, Any], name: str = "Mia") -> dict[str, Any]:
    return {"name": name, "type": "personal_chat", "id": 1, "messages": list(messages)}


ONE = chat(
    {"id": 0, "type": "service", "date": "2024-05-01T09:00:00", "actor": "Mia", "action": "phone_call", "text": ""},
    message("Mia", ["see ", {"type": "link", "text": "https://example.org"}, "?"]),
    message("Me", "Seen.", date_unixtime="1714557600"),
    message("Me", "", photo="(File not included)", width=3),
    message("Me", "The boat", file="(File not included)", media_type="video_file"),
    message("Me", "Not mine", forwarded_from="Somebody"),
    message(None, "I am gone."),
    message("Me", [{"type": "bold", "text": "Bye."}]),
)
TALK = [
    {"role": "user", "content": "see https://example.org?"},
    {"role": "assistant", "content": "Seen.\nThe boat"},
    {"role": "user", "content": "I am gone."},
    {"role": "assistant", "content": "Bye."},
]


def test_a_chat_and_all_chats_are_read(tmp_path: Path) -> None:
    counted = {"notices of the app": 1, "images and other files": 2, "forwarded messages": 1}
    assert read(tmp_path / "result.json", ONE) == ([{"messages": TALK}], counted)
    other = chat(message("Me", "Hello?"), message("Zoe", "Yes?"), message("Me", "No."), name="Zoe")
    found, left_out = read(tmp_path / "result.json", {"about": "x", "chats": {"about": "y", "list": [ONE, other]}})
    second = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": "No."}]
    assert found == [{"messages": TALK}, {"messages": second}]
    assert left_out - Counter(counted) == {
        "messages of the assistant's side with nothing in front of them to answer": 1
    }


@pytest.mark.parametrize("key", ["date", "date_unixtime"])
def test_a_pause_ends_a_conversation(tmp_path: Path, key: str) -> None:
    times = {
        "date": ("2024-05-01T10:00:00", "2024-05-01T13:59:59", "2024-05-01T18:00:00"),
        "date_unixtime": ("1714557600", "1714571999", "1714586400"),
    }
    first, second, third = times[key]
    document = chat(
        *(
            message(writer, "x", **{key: at})
            for writer, at in (("Mia", first), ("Me", second), ("Mia", third), ("Me", third))
        )
    )  # type: ignore[arg-type]
    assert [len(one["messages"]) for one in read(tmp_path / "result.json", document)[0]] == [2, 2]


def test_who_is_me_must_be_one_of_the_writers(tmp_path: Path) -> None:
    for me in (None, "Mia", "Nobody"):
        with pytest.raises(ConfigError, match="expected one of 'Me', 'Zoe'"):
            read(tmp_path / "a.json", chat(message("Me", "a"), message("Me", "b"), message("Zoe", "c")), me)


@pytest.mark.parametrize(
    "document", [[], {}, {"chats": 3}, {"messages": 3}, {"chats": {"list": [3]}}, 3, None, [{"messages": []}]]
)
def test_what_is_no_export_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(DataError, match="Check which app the export is of"):
        read(tmp_path / "a.json", document)


@pytest.mark.parametrize("indent", [None, 1])
def test_an_export_given_as_examples_is_named(tmp_path: Path, indent: int | None) -> None:
    for document in (ONE, {"chats": {"list": [ONE]}}):
        (tmp_path / "result.json").write_text(json.dumps(document, indent=indent), encoding="utf-8")
        with pytest.raises(
            DataError, match=r"an export of Telegram.*bespoke read result\.json --as telegram --me NAME --out"
        ):
            list(read_examples(tmp_path / "result.json"))
