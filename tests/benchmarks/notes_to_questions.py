# SPDX-License-Identifier: Apache-2.0
"""How often a model writes a usable question and answer from a note, by the wording that asks for it.

    python tests/benchmarks/notes_to_questions.py BUNDLE PERSONA.qa.jsonl [--notes 50] [--pairs pairs.jsonl]

A note is the `source` of a persona's question. A pair is usable if its answer occurs in the note, and if the base model gives that
answer with the note in the prompt and not without it. All answers are greedy.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bespoke import PersonalModel

Messages = list[dict[str, str]]
FORM = re.compile(r"Question:\s*(.+?)\s*\n+\s*Answer:\s*(.+?)\s*(?:\n|$)", re.IGNORECASE | re.DOTALL)
MOST_TOKENS = 64
STEPS = (
    "a question and an answer",
    "the answer occurs in the note",
    "answered with the note",
    "not answered without it",
)

# Notes of other people than the personas, with the pairs that a person would write.
SHOTS = (
    ("My sister Clara moved to Lisbon in May.", "Where did my sister Clara move?", "Lisbon"),
    ("The dentist said I should come back in six months.", "When should I go back to the dentist?", "in six months"),
    ("I sold my old Volvo and bought a red bicycle.", "What did I buy after I sold my car?", "a red bicycle"),
    ("Our team meets every Tuesday at nine in room 214.", "In which room does my team meet?", "room 214"),
)
ASKED = "Write one question about this note and its short answer, in words of the note.\n\nNote: {note}"
IN_FORM = ASKED + "\n\nUse this form:\nQuestion: ...\nAnswer: ..."


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _pair(question: str, answer: str) -> str:
    return f"Question: {question}\nAnswer: {answer}"


def plain(note: str) -> Messages:
    return [_user(IN_FORM.format(note=note))]


def shown_in_text(note: str) -> Messages:
    shots = "\n\n".join(f"Note: {shot}\n{_pair(question, answer)}" for shot, question, answer in SHOTS)
    return [_user(f"Write one question and its short answer for each note.\n\n{shots}\n\nNote: {note}")]


def shown_as_turns(note: str) -> Messages:
    turns: Messages = []
    for shot, question, answer in SHOTS:
        turns += [_user(ASKED.format(note=shot)), _assistant(_pair(question, answer))]
    return [*turns, _user(ASKED.format(note=note))]


def shown_as_short_turns(note: str) -> Messages:
    turns: Messages = []
    for shot, question, answer in SHOTS:
        turns += [_user(shot), _assistant(_pair(question, answer))]
    return [
        {"role": "system", "content": "You turn each note into a question and its short answer."},
        *turns,
        _user(note),
    ]


TEMPLATES = {
    "plain": plain,
    "examples in the text": shown_in_text,
    "examples as turns": shown_as_turns,
    "examples as short turns": shown_as_short_turns,
}


def has(answer: str, text: str) -> bool:
    """Returns whether `answer` occurs in `text`, in whole words."""
    return re.search(rf"(?<!\w){re.escape(answer.lower())}(?!\w)", text.lower()) is not None


def pair_of(written: str) -> tuple[str, str] | None:
    """Returns the question and the answer that a model wrote. None: it wrote something else."""
    match = FORM.search(written)
    if match is None:
        return None
    question, answer = match[1].strip(), match[2].strip().strip("\"'").rstrip(".").strip()
    return (question, answer) if question and answer else None


def judged(model: PersonalModel, note: str, messages: Messages) -> dict[str, Any]:
    """Returns what the model wrote for a note, and how many of STEPS the pair passed."""

    def answer(asked: Messages) -> str:
        return "".join(model.generate(asked, max_tokens=MOST_TOKENS)).strip()

    written = answer(messages)
    result: dict[str, Any] = {"note": note, "written": written, "steps": 0}
    pair = pair_of(written)
    if pair is None:
        return result
    question, wanted = pair
    result |= {"question": question, "answer": wanted, "steps": 1}
    if not has(wanted, note):
        return result
    with_note = answer([_user(f"Notes:\n- {note}\n\n{question}")])
    result |= {"with_note": with_note, "steps": 2}
    if not has(wanted, with_note):
        return result
    without = answer([_user(question)])
    return result | {"without": without, "steps": 3 if has(wanted, without) else 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("persona", type=Path)
    parser.add_argument("--notes", type=int, default=50)
    parser.add_argument("--pairs", type=Path, help="where the pairs go, one JSON object a line")
    given = parser.parse_args()
    notes = list(dict.fromkeys(json.loads(line)["source"] for line in given.persona.read_text().splitlines()))
    notes = notes[: given.notes]
    pairs = []
    with tempfile.TemporaryDirectory() as state, PersonalModel.open(given.bundle, Path(state) / "state") as model:
        for name, template in TEMPLATES.items():
            rows = [{"template": name, **judged(model, note, template(note))} for note in notes]
            pairs += rows
            passed = Counter(step for row in rows for step in STEPS[: row["steps"]])
            print(name, "; ".join(f"{step}: {passed[step]} of {len(notes)}" for step in STEPS), sep=": ", flush=True)
            if given.pairs:
                given.pairs.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in pairs))


if __name__ == "__main__":
    sys.exit(main())
