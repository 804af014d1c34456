# SPDX-License-Identifier: Apache-2.0
"""Notes: which passages of the user's examples are nearest to a question."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.native.core_store import CoreStore

from .conftest import OpenState
from .states import add, all_bytes, token_row

NOTES = (
    "My sister Clara moved to Lisbon in May.",
    "The dentist said I should come back in six months.",
    "I sold my old Volvo and bought a red bicycle.",
    "Our team meets every Tuesday at nine in room 214.",
)


@pytest.fixture
def store(tmp_path: Path, open_state: OpenState) -> Iterator[CoreStore]:
    with open_state(tmp_path / "alice") as opened:
        yield opened


@pytest.fixture
def filled(store: CoreStore) -> CoreStore:
    for note in NOTES:
        add(store, note)
    return store


@pytest.mark.parametrize(
    ("question", "nearest"),
    [
        ("Where did Clara move?", NOTES[0]),
        ("when is the DENTIST?", NOTES[1]),
        ("Bicycle: which colour?", NOTES[2]),
        ("What happens on Tuesday in room 214?", NOTES[3]),
    ],
)
def test_the_note_with_the_words_of_the_question_comes_first(filled: CoreStore, question: str, nearest: str) -> None:
    assert filled.nearest_notes(question)[0] == nearest
    assert filled.nearest_notes(question, most=1) == [nearest]


def test_notes_without_a_word_of_the_question_are_not_there(filled: CoreStore) -> None:
    assert filled.nearest_notes("Lisbon") == [NOTES[0]]
    assert filled.nearest_notes("Explain photosynthesis") == []


def test_the_order_is_that_of_bm25(store: CoreStore) -> None:
    """The oracle is bm25 as the literature has it, with k1 = 1.2 and b = 0.75."""
    draw = random.Random(5)
    words = [f"word{number}" for number in range(12)]
    notes = [" ".join(draw.choices(words, k=draw.randint(3, 12))) for _ in range(40)]
    for number, note in enumerate(notes):
        add(store, note, id=str(number))
    for question in (words[:2], words[3:6], words[8:]):
        scores = bm25(notes, question)
        nearest = store.nearest_notes(" ".join(question), most=8)
        found = [max(score for note, score in zip(notes, scores, strict=True) if note == one) for one in nearest]
        assert found == pytest.approx(sorted(scores, reverse=True)[:8])


def bm25(notes: list[str], question: list[str]) -> list[float]:
    import math

    documents = [note.split() for note in notes]
    mean = sum(map(len, documents)) / len(documents)
    scores = [0.0] * len(documents)
    for word in question:
        having = sum(word in document for document in documents)
        # FTS5 takes a small number where more than half of the notes have a word.
        rarity = max(math.log((len(documents) - having + 0.5) / (having + 0.5)), 1e-6)
        for place, document in enumerate(documents):
            count = document.count(word)
            scores[place] += rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(document) / mean))
    return scores


@pytest.mark.parametrize(
    "question",
    [
        '"',
        '""',
        'Clara"',
        "Clara AND",
        "NEAR(Clara Lisbon)",
        "words: Clara*",
        "^Clara OR",
        "(",
        "Clara -- ' ; DROP",
        "{a b}: Clara",
        "\\",
        "+",
    ],
)
def test_a_question_is_words_and_never_an_expression(filled: CoreStore, question: str) -> None:
    assert filled.nearest_notes(question, most=1) in ([], [NOTES[0]])
    assert ("Clara" in question) == bool(filled.nearest_notes(question, most=1))


def test_a_question_of_many_words_is_looked_for_by_its_last_ones(filled: CoreStore) -> None:
    assert filled.nearest_notes("word " * 5000 + "Clara", most=1) == [NOTES[0]]
    assert filled.nearest_notes("".join(f"w{number} " for number in range(20_000)) + "Clara", most=1) == [NOTES[0]]


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("Ich wohne in der Größenstraße.", "Was ist die GROSSENSTRASSE, Größenstraße?"),
        ("J'adore le café crème.", "Ou est le cafe?"),
        ("Моя сестра живёт в Риге.", "Где Рига? В Риге?"),
        ("我的妹妹住在里斯本。", "里斯本在哪里?"),
        ("妹は大阪に住んでいます。", "大阪"),
        ("แม่อยู่ที่เชียงใหม่", "เชียงใหม่"),
    ],
)
def test_notes_of_other_languages_are_found(filled: CoreStore, note: str, question: str) -> None:
    add(filled, note)
    assert filled.nearest_notes(question, most=1) == [note]


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ({"prompt": "Where is the zebra?", "completion": " In the zoo."}, "Where is the zebra?\nIn the zoo."),
        (
            {
                "messages": [
                    {"role": "system", "content": "You know the zebra."},
                    {"role": "user", "content": "Where is the zebra?"},
                    {"role": "assistant", "content": [{"type": "text", "text": "In the zoo."}]},
                ]
            },
            "Where is the zebra?\nIn the zoo.",
        ),
        ({"prompt": [{"role": "user", "content": "A zebra?"}], "completion": "Yes."}, "A zebra?\nYes."),
        ({"prompt": "A zebra?", "chosen": "Yes.", "rejected": "No zebra."}, None),
        ({"tokens": [1, 2, 3]}, None),
    ],
)
def test_a_note_has_the_words_of_the_user_and_of_the_answer(
    filled: CoreStore, example: dict[str, Any], words: str | None
) -> None:
    filled.add_example(example, [token_row(1, 2, 3)])
    assert filled.nearest_notes("zebra") == ([] if words is None else [words])


def test_a_long_text_is_found_by_its_passages(store: CoreStore) -> None:
    sentences = [
        f"Sentence {number} tells of animal{number} and of nothing else that matters here." for number in range(60)
    ]
    add(store, " ".join(sentences))
    for number in (0, 17, 59):
        (passage,) = store.nearest_notes(f"animal{number}")
        assert sentences[number] in passage
        assert len(passage) <= 400
    found = {passage for number in range(60) for passage in store.nearest_notes(f"animal{number}")}
    assert sorted(" ".join(found).split()) == sorted(" ".join(sentences).split())


@pytest.mark.parametrize("character", ["x", "湖", "🙂", "é"])
def test_a_long_text_without_sentences_is_cut_between_characters(store: CoreStore, character: str) -> None:
    add(store, "zebra " + character * 2000)
    (passage,) = store.nearest_notes("zebra")
    assert passage == "zebra" or set(passage.removeprefix("zebra").strip()) == {character}
    assert len(passage.encode()) <= 400


def test_of_notes_that_are_as_near_the_newer_comes_first(store: CoreStore) -> None:
    for number in range(3):
        add(store, "I live in Bergen.", id=str(number))
        add(store, f"Unit {number} is large.", id=f"other {number}")
    add(store, "I live in London.", id="newest")
    assert store.nearest_notes("Where do I live?", most=1) == ["I live in London."]


def test_examples_of_later_are_found_and_forgotten_ones_are_not(
    tmp_path: Path, filled: CoreStore, open_state: OpenState
) -> None:
    assert filled.nearest_notes("zebra") == []
    add(filled, "A zebra lives here.", id="zebra")
    with open_state(tmp_path / "alice") as other:  # another process of the same user
        add(other, "Another zebra, too.", id="other")
        assert set(filled.nearest_notes("zebra")) == {"A zebra lives here.", "Another zebra, too."}
        other.forget("zebra")
        assert filled.nearest_notes("zebra") == ["Another zebra, too."]
    filled.forget("other")
    assert filled.nearest_notes("zebra") == []
    assert filled.nearest_notes("Lisbon") == [NOTES[0]]


def test_asking_for_notes_writes_no_word_to_a_file(filled: CoreStore) -> None:
    with closing(sqlite3.connect(filled.folder / "state.sqlite")) as database:
        before = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    add(filled, "The unforgettable Zebulon plays the bassoon.", id="gone")
    assert filled.nearest_notes("zebulon bassoon")
    filled.forget("gone")
    for word in (b"ebulon", b"assoon", b"unforgettable"):
        assert word not in all_bytes(filled.folder)
    with closing(sqlite3.connect(filled.folder / "state.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM sqlite_schema").fetchone() == before
