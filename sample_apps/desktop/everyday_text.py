# SPDX-License-Identifier: Apache-2.0
"""Everyday English without a download: short stories, remarks, talks and chats, as many as are asked for.

A small grammar, written for this project, so that a language model can be pretrained on any machine with nothing fetched
and nobody's words copied. Sentences are drawn from `everyday_scenes`, their slots from `everyday_words`; a story keeps one
person and every word that a slot has bound (`{word.1}`), so that there is something to predict across sentences. The same seed
gives the same text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from sample_apps.desktop.everyday_scenes import ASK_FOR_A_STORY, CHATS, REMARKS, STORIES, TALKS, TOPICS
from sample_apps.desktop.everyday_words import MEN, WOMEN, WORDS

Message = dict[str, str]

SLOT = re.compile(r"\{(\w+)(?:\.(\d))?\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
SENTENCE_START = re.compile(r'(^"?|[.!?] "?)([a-z])')  # not after a quotation: "Where?" asked Ben.
SYSTEM = "You are a helpful assistant."


class _Story:
    """One person, and the words chosen so far."""

    def __init__(self, rng: random.Random, topic: str | None = None) -> None:
        self.rng = rng
        self.used: set[str] = set()
        self.bound: dict[str, str] = {"topic": rng.choice(TOPICS[topic])} if topic else {}
        woman = rng.random() < 0.5
        name, other = rng.choice(WOMEN if woman else MEN), rng.choice(MEN if woman else WOMEN)
        self.name: str | None = None
        self.named = False
        if rng.random() < 0.5:
            self.bound |= {"N": "I", "S": "I", "O": "me", "P": "my", "R": "myself", "M": other}
        else:
            self.name = name
            pronouns = ("she", "her", "her", "herself") if woman else ("he", "him", "his", "himself")
            self.bound |= dict(zip("SOPR", pronouns, strict=True)) | {"M": other}

    def _fill(self, slot: re.Match[str]) -> str:
        word, index = slot.group(1), slot.group(2)
        if word in "NS" and self.name is not None:
            # By name at first, then mostly by pronoun: what a reader expects.
            by_name, self.named = not self.named or (word == "N" and self.rng.random() < 0.3), True
            return self.name if by_name else self.bound["S"]
        if word in self.bound:
            return self.bound[word]
        key = f"{word}.{index}"
        if index is not None and key in self.bound:
            return self.bound[key]
        text = self.expand(self.rng.choice(WORDS[word]))
        for _ in range(3):  # another word rather than the same one twice
            if text not in self.used:
                break
            text = self.expand(self.rng.choice(WORDS[word]))
        self.used.add(text)
        if index is not None:
            self.bound[key] = text
        return text

    def expand(self, template: str) -> str:
        return SLOT.sub(self._fill, template)

    def sentence(self, template: str) -> str:
        text = ARTICLE.sub(r"\1n ", self.expand(template))
        return SENTENCE_START.sub(lambda match: match.group(1) + match.group(2).upper(), text)


def _sentences(story: _Story, topic: str, length: int) -> str:
    scene = STORIES[topic]
    templates = [story.rng.choice(scene["openings"]), *story.rng.sample(scene["middles"], length)]
    if story.rng.random() < 0.6:
        templates.append("{feltwell}.")
    return " ".join(story.sentence(template) for template in templates)


def document(rng: random.Random) -> str:
    """One plain text: a story of three to seven sentences (most), a few remarks, or a talk between two people."""
    kind = rng.random()
    if kind < 0.75:
        return _sentences(_Story(rng), rng.choice(list(STORIES)), rng.randint(2, 5))
    story = _Story(rng)
    if kind < 0.9:
        return " ".join(story.sentence(template) for template in rng.sample(REMARKS, rng.randint(2, 4)))
    # By name each time: nobody says: "It is late," said I.
    story.bound["N"], story.name = story.name or rng.choice(WOMEN + MEN), None
    return story.sentence(rng.choice(TALKS))


def conversation(rng: random.Random) -> list[Message]:
    """One chat of one to three exchanges, in a third of the cases with a system message."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}] if rng.random() < 0.33 else []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.3:
            topic = rng.choice(list(STORIES))
            story = _Story(rng, topic)
            question, answer = story.sentence(rng.choice(ASK_FOR_A_STORY)), _sentences(story, topic, rng.randint(2, 3))
        else:
            story = _Story(rng)
            question, answer = (story.sentence(part) for part in rng.choice(CHATS))
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def documents(seed: int) -> Iterator[str]:
    """Plain texts without end."""
    rng = random.Random(f"everyday text {seed}")
    while True:
        yield document(rng)


def conversations(seed: int) -> Iterator[list[Message]]:
    """Chats without end, as lists of messages."""
    rng = random.Random(f"everyday chats {seed}")
    while True:
        yield conversation(rng)
