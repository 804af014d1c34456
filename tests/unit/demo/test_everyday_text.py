# SPDX-License-Identifier: Apache-2.0
"""The generated everyday text: the same for a seed, whole sentences, no gaps, and not the same thing over and over."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest
from sample_apps.desktop.everyday_scenes import ASK_FOR_A_STORY, CHATS, REMARKS, STORIES, TALKS, TOPICS
from sample_apps.desktop.everyday_text import conversations, documents
from sample_apps.desktop.everyday_words import WORDS

PERSON = {"N", "S", "O", "P", "R", "M", "topic"}


@pytest.fixture(scope="module")
def sample() -> list[str]:
    return list(itertools.islice(documents(3), 5000))


def test_same_seed_gives_the_same_text_and_another_seed_another(sample: list[str]) -> None:
    assert list(itertools.islice(documents(3), 50)) == sample[:50]
    assert list(itertools.islice(documents(4), 50)) != sample[:50]
    assert list(itertools.islice(conversations(3), 50)) == list(itertools.islice(conversations(3), 50))


def test_every_slot_of_every_sentence_has_words() -> None:
    stories = [line for scene in STORIES.values() for lines in scene.values() for line in lines]
    chats = [part for chat in CHATS for part in chat]
    entries = [entry for entries in WORDS.values() for entry in entries]
    for line in [*stories, *chats, *REMARKS, *TALKS, *ASK_FOR_A_STORY, *entries]:
        for slot in re.findall(r"\{([^}]*)\}", line):
            assert slot.partition(".")[0] in WORDS.keys() | PERSON, line
    assert TOPICS.keys() == STORIES.keys()


def test_texts_are_whole_sentences(sample: list[str]) -> None:
    for text in sample:
        assert not re.search(r"[{}|\n]|  ", text), text
        assert text[0].isupper() or text[0] in '"0123456789', text
        assert text[-1] in '.!?"', text
        assert not re.search(r"\b[Aa] [aeiou]", text), text


def test_texts_are_varied(sample: list[str]) -> None:
    assert len(set(sample)) > 0.99 * len(sample)
    words = Counter(re.findall(r"[a-z]+", " ".join(sample).lower()))
    assert sum(count >= 5 for count in words.values()) > 700
    assert sum(len(text) for text in sample) > 800_000


def test_chats_alternate_and_end_with_the_assistant() -> None:
    for chat in itertools.islice(conversations(5), 500):
        roles = [message["role"] for message in chat if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert roles
        assert all(message["content"].strip() for message in chat)
