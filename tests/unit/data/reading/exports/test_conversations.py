# SPDX-License-Identifier: Apache-2.0
"""Where a chat is cut into conversations, and what is in none of them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from bespoke.data.reading.exports.conversations import BEFORE, PAUSE_SECONDS, UNANSWERED, ChatMessage, conversations

HOUR = 3600


def turns(chat: str) -> tuple[list[str], Counter[str]]:
    """Conversations of a chat in short: "u1 a2 | u3", where u and a are the sides and | is a pause; "U12 A3" for what comes out."""
    left_out: Counter[str] = Counter()
    seconds = 0.0
    written = []
    for word in chat.split():
        if word == "|":
            seconds += PAUSE_SECONDS + 1
            continue
        seconds += 60
        written.append(ChatMessage("user" if word[0] == "u" else "assistant", word[1:], seconds))
    found = []
    for one in conversations(written, left_out):
        found.append(" ".join(turn["role"][0].upper() + turn["content"].replace("\n", "") for turn in one["messages"]))
    return found, +left_out


@pytest.mark.parametrize(
    ("chat", "found", "before", "unanswered"),
    [
        ("u1 a2 u3 a4", ["U1 A2 U3 A4"], 0, 0),
        ("u1 u2 a3 a4 u5", ["U12 A34 U5"], 0, 0),
        ("u1 a2 | u3 a4", ["U1 A2", "U3 A4"], 0, 0),
        ("u1 | a2 u3 a4", ["U1 A2 U3 A4"], 0, 0),  # a late answer keeps its question
        ("u1 a2 | a3 u4 a5", ["U1 A2", "U4 A5"], 1, 0),
        ("u1 a2 | a3 a4", ["U1 A2"], 2, 0),
        ("a1 a2 u3 a4", ["U3 A4"], 2, 0),
        ("u1 u2 | u3 a4", ["U3 A4"], 0, 2),
        ("a1 u2", [], 1, 1),
        ("u1", [], 0, 1),
        ("", [], 0, 0),
    ],
)
def test_pauses_and_sides(chat: str, found: list[str], before: int, unanswered: int) -> None:
    assert turns(chat) == (found, +Counter({BEFORE: before, UNANSWERED: unanswered}))


def test_a_clock_that_is_not_known_or_goes_back_ends_nothing() -> None:
    for first, second in ((None, 9e9), (0.0, None), (9e9, 0.0), (0.0, float(PAUSE_SECONDS))):
        chat = [
            ChatMessage("user", "a", 0.0),
            ChatMessage("assistant", "b", first),
            ChatMessage("user", "c", second),
            ChatMessage("assistant", "d", second),
        ]
        assert len(list(conversations(chat, Counter()))) == 1


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_lost_or_made_up(seed: int) -> None:
    """Every message is in one conversation, in order, or counted."""
    chance = random.Random(seed)
    seconds = 0.0
    chat = []
    for number in range(chance.randrange(60)):
        seconds += chance.choice([10, 600, HOUR, 5 * HOUR, 30 * HOUR])
        chat.append(ChatMessage(chance.choice(["user", "assistant"]), str(number), seconds))  # type: ignore[arg-type]
    left_out: Counter[str] = Counter()
    found = [one["messages"] for one in conversations(chat, left_out)]
    kept = [int(text) for one in found for turn in one for text in turn["content"].split("\n")]
    assert kept == sorted(set(kept))
    assert len(kept) + sum(left_out.values()) == len(chat)
    for one in found:
        roles = [turn["role"] for turn in one]
        assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
        assert "assistant" in roles
        for turn in one:
            assert {chat[int(text)].role for text in turn["content"].split("\n")} == {turn["role"]}
