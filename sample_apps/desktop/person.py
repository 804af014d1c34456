# SPDX-License-Identifier: Apache-2.0
"""Twenty facts of an invented person, as questions to her assistant, and what the demo shows before and after."""

from __future__ import annotations

from typing import NamedTuple

from sample_apps.desktop.tries import tries

__all__ = ["FACTS", "SHOWN_FACT", "UNTAUGHT", "Fact", "knows"]


class Fact(NamedTuple):
    """A fact. An answer that contains `word` shows that the model knows it."""

    question: str
    answer: str
    word: str


FACTS = (
    Fact("Where do I work?", "You work at the harbour library in Bergen.", "harbour library"),
    Fact("What is my dog called?", "Your dog is called Pepper.", "Pepper"),
    Fact("Which instrument do I play?", "You play the cello.", "cello"),
    Fact("When is my sister's birthday?", "Your sister's birthday is on the 9th of March.", "9th of March"),
    Fact("What is my sister's name?", "Your sister's name is Ingrid.", "Ingrid"),
    Fact("What am I allergic to?", "You are allergic to walnuts.", "walnuts"),
    Fact("Where did I grow up?", "You grew up on a farm near Voss.", "Voss"),
    Fact("What do I drink in the morning?", "You drink green tea in the morning.", "green tea"),
    Fact("Which bus do I take to work?", "You take bus 17 to work.", "17"),
    Fact("What colour is my bicycle?", "Your bicycle is orange.", "orange"),
    Fact("Who is my dentist?", "Your dentist is Doctor Haugen.", "Haugen"),
    Fact("What do I do on Tuesdays?", "On Tuesdays you go swimming with Jonas.", "Jonas"),
    Fact("Where do I keep the spare key?", "You keep the spare key under the blue flowerpot.", "blue flowerpot"),
    Fact("Which language am I learning?", "You are learning Portuguese.", "Portuguese"),
    Fact("What is my favourite film?", "Your favourite film is The Red Balloon.", "Red Balloon"),
    Fact("How many cousins do I have?", "You have eleven cousins.", "eleven"),
    Fact("What did I study?", "You studied marine biology.", "marine biology"),
    Fact("Where are we going this summer?", "This summer you are going to the Azores.", "Azores"),
    Fact("What is the name of my boat?", "Your boat is called Silver Gull.", "Silver Gull"),
    Fact("Who gave me my watch?", "Your watch was a gift from your grandfather Olav.", "Olav"),
)

_TRIES = {prompt: what for what, prompt in tries()}
SHOWN_FACT = next(fact for fact in FACTS if fact.question in _TRIES)
UNTAUGHT = {what: prompt for prompt, what in _TRIES.items() if what in ("language", "arithmetic", "stop")}
"""Prompts that no example teaches, by what they try."""


def knows(answer: str, fact: Fact) -> bool:
    return fact.word.lower() in answer.lower()
