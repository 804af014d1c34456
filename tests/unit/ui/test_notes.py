# SPDX-License-Identifier: Apache-2.0
"""The list of notes with revisions: who takes the changes has the list, and of what went nothing is kept."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest

from bespoke.rules.records import ExampleInfo
from bespoke.ui.notes import MOST_GONE_KEPT, Notes, question_of, words_of


def example(number: int, words: str) -> ExampleInfo:
    return ExampleInfo(f"id {number}", "train", {"text": words}, 1, 1, 1, f"2026-01-01T00:00:{number:06}")


class Browser:
    """A list kept by changes alone."""

    def __init__(self) -> None:
        self.revision = 0
        self.words: dict[int, str] = {}

    def look(self, notes: Notes) -> int:
        """How many notes and numbers it was sent."""
        if (changes := notes.since(self.revision)) is None:
            return 0
        if changes["whole"]:
            self.words = {}
        for number in changes["gone"]:
            del self.words[number]
        for one in changes["new"]:
            assert one["number"] not in self.words
            self.words[one["number"]] = one["words"]
        self.revision = changes["revision"]
        return len(changes["gone"]) + len(changes["new"])


def test_browsers_that_look_at_different_times_have_the_list() -> None:
    draw, notes, browsers = random.Random(1), Notes(), [Browser() for _ in range(3)]
    held: list[ExampleInfo] = []
    for step in range(400):
        for one in draw.sample(held, min(len(held), draw.randrange(3))):
            held.remove(one)
        held += [example(10 * step + n, draw.choice("abc")) for n in range(draw.randrange(4))]
        notes.update(held)
        for browser in browsers:
            if draw.random() < 0.3:
                browser.look(notes)
                assert list(browser.words.values()) == [one.json["text"] for one in held]
                assert browser.look(notes) == 0


def test_a_note_that_was_replaced_under_its_id_is_another_one() -> None:
    notes, browser = Notes(), Browser()
    notes.update([example(1, "old"), example(2, "two")])
    browser.look(notes)
    notes.update([example(2, "two"), ExampleInfo("id 1", "train", {"text": "new"}, 1, 1, 1, "2026-01-02")])
    assert browser.look(notes) == 2  # the number that went, and the note that came
    assert list(browser.words.values()) == ["two", "new"]
    assert notes.went == 1


def test_who_was_away_for_long_gets_the_whole_list() -> None:
    notes, browser = Notes(), Browser()
    held = [example(number, str(number)) for number in range(MOST_GONE_KEPT + 10)]
    notes.update(held)
    browser.look(notes)
    for _ in range(MOST_GONE_KEPT + 5):
        notes.update(held := held[1:])
    assert browser.look(notes) == 5
    assert list(browser.words.values()) == [one.json["text"] for one in held]


def test_nothing_of_a_note_that_went_is_held() -> None:
    notes = Notes()
    notes.update([example(1, "the door code is 4711"), example(2, "two")])
    notes.update([example(2, "two")])
    assert "4711" not in repr(reachable(notes))
    assert "id 1" not in repr(reachable(notes))


def reachable(found: Any) -> list[Any]:
    """All plain values that an object holds."""
    seen, todo, plain = {id(found)}, [found], []
    while todo:
        one = todo.pop()
        if isinstance(one, str | int | bytes):
            plain.append(one)
        elif not isinstance(one, type):
            for held in gc.get_referents(one):
                if id(held) not in seen and not callable(held):
                    seen.add(id(held))
                    todo.append(held)
    return plain


def test_a_conversation_in_parts_of_text_is_listed_by_its_words() -> None:
    parts = [{"type": "text", "text": "Where is "}, {"type": "text", "text": "the key?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "Under the pot."}]
    assert words_of({"messages": messages}) == "Where is the key? \N{RIGHTWARDS ARROW} Under the pot."


QUESTION, ANSWER = {"role": "user", "content": "Where is the key?"}, {"role": "assistant", "content": "Under the pot."}


@pytest.mark.parametrize(
    ("example", "question"),
    [
        ({"messages": [QUESTION, ANSWER]}, "Where is the key?"),
        ({"prompt": "Where is the key? ", "completion": "Under the pot."}, "Where is the key?"),
        ({"prompt": [QUESTION], "chosen": "Under the pot.", "rejected": "No."}, "Where is the key?"),
        ({"prompt": "The key is", "completion": " under", "as": "text"}, None),
        ({"messages": [QUESTION, ANSWER, QUESTION, ANSWER]}, None),
        ({"messages": [{"role": "system", "content": "Be short."}, QUESTION, ANSWER]}, None),
        ({"text": "The key is under the pot."}, None),
        ({"tokens": [1, 2]}, None),
    ],
)
def test_the_question_of_an_example_is_what_a_user_would_ask(example: dict[str, Any], question: str | None) -> None:
    assert question_of(example) == question


def test_the_first_question_that_is_learned_from_is_known() -> None:
    notes = Notes()
    held_out, taught = ({"prompt": words, "completion": "."} for words in ("Held out?", "Taught?"))
    listed = [
        ExampleInfo("id", split, json, 1, 1, 1, "2026")
        for split, json in (("train", {"text": "Soup"}), ("validation", held_out), ("train", taught))
    ]
    notes.update(listed)
    assert notes.question == "Taught?"
    notes.update(listed[:-1])
    assert notes.question is None


def test_a_correction_is_listed_by_the_better_answer() -> None:
    correction = {"prompt": [QUESTION], "chosen": "Under the pot.", "rejected": "Who knows?"}
    assert words_of(correction) == "Where is the key? \N{RIGHTWARDS ARROW} Under the pot."
