# SPDX-License-Identifier: Apache-2.0
"""What the page shows and does for one user's model: examples, one training at a time, and answers of the versions.

Nothing is kept here that was learned from a forgotten note, and no answer of a version that was rolled back. Each look at the state
drops what no longer follows from it, whichever process changed it.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bespoke.answering import ANSWER_TOKENS
from bespoke.errors import BespokeError, Busy, DataError
from bespoke.personal_model import PersonalModel
from bespoke.rules.report import TrainReport
from bespoke.ui.answers import Answers
from bespoke.ui.base import BaseModel
from bespoke.ui.training import TrainingView
from bespoke.ui.watch import Seen, Watch

__all__ = ["Begun", "Desk"]

TURN_SECONDS = 10.0  # that a question waits for the answer to another one
_WITHDRAWN = "A note was forgotten while it trained: what that training did is not shown."


class Desk:
    """The actions of the page. Any thread may call it. `close` stops a training in a committed state."""

    def __init__(self, model: PersonalModel, state: Path, base: BaseModel) -> None:
        self._model = model
        self._base = base
        self._watch = Watch(model, state)
        self._looking = threading.Lock()
        self._lock = threading.Lock()  # guards `_training`
        self._answering = threading.Lock()  # held while an answer is given
        self._training = TrainingView()
        self._answers = Answers()
        self._went = 0  # forgotten notes when their consequences were last dropped

    def close(self) -> None:
        self.stop()
        if (thread := self._training.thread) is not None:
            thread.join()

    def view(self, has: dict[str, Any]) -> dict[str, Any]:
        """The page's contents as JSON values, without what the browser already has."""
        with self._looking:
            seen = self._look()
            notes = self._watch.notes
            asked = [self._answers.revision, seen.version]
            contents = {
                "versions": [
                    {"id": version.id, "step": version.step, "accepted_at": version.accepted_at}
                    for version in seen.versions
                ],
                "version": seen.version,
                "unfinished": seen.run is not None,
                "limit_bytes": self._model.limit_bytes,
                "count": len(notes),
                "went": notes.went,
                "training": self._training.state(_object(has.get("training"))),
            }
            if (changes := notes.since(_number(has.get("notes")))) is not None:
                contents["notes"] = changes
            if asked != has.get("asked"):
                contents["asked"] = {"revision": asked, "list": self._answers.compared(seen.version)}
            taught = [] if notes.question is None else [notes.question]
            if (tries := [*taught, *self._base.questions]) != has.get("tries"):
                contents["tries"] = tries
        return contents

    def _see(self, *, thorough: bool = False) -> Seen:
        with self._looking:
            return self._look(thorough=thorough)

    def _look(self, *, thorough: bool = False) -> Seen:
        """Reads the state and drops what no longer follows from it.

        The caller holds `_looking`, so that no other thread shows the dropped contents meanwhile.
        """
        seen = self._watch.look(thorough=thorough)
        forgotten = self._watch.notes.went != self._went
        self._went = self._watch.notes.went
        if forgotten:
            self._answers.clear()
        self._answers.keep({0, *(version.id for version in seen.versions)})
        with self._lock:
            training = self._training
            if training.ended and (forgotten or training.ended_with != seen.version):
                self._training = TrainingView(training.number + 1)
        return seen

    # ---- examples --------------------------------------------------------------------------------------------------------

    def add(self, prompt: str, completion: str, *, must_know: bool = False) -> dict[str, Any]:
        """Adds an example: a question with its answer, or a text without a question. `must_know` keeps it from being held out."""
        prompt, completion = prompt.strip(), completion.strip()
        if not completion:
            raise DataError("the note", got="no words", expected="what you write yourself", next_step="Write something")
        if not prompt:
            example: dict[str, Any] = {"text": completion}
        elif self._model.has_turns:
            example = {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]}
        else:
            example = {"prompt": prompt, "completion": completion}
        return asdict(self._model.examples.add(example, use="train" if must_know else None))

    def forget(self, id: str) -> dict[str, Any]:
        try:
            return asdict(self._model.examples.forget(id))
        finally:  # after an error too: the note may be deleted and only the erasure of its old bytes have failed
            self._see(thorough=True)

    # ---- training --------------------------------------------------------------------------------------------------------

    def train(self, run_steps: int | None) -> None:
        """Begins a new run of so many steps, or goes on with the unfinished one. `view` shows the progress. Busy while one runs."""
        self._see(thorough=True)
        with self._lock:
            if self._training.runs():
                raise Busy(
                    "the model", got="a training while one runs", expected="one at a time", next_step="Wait for its end"
                )
            self._model.check_settings(run_steps=run_steps)
            training = TrainingView(self._training.number + 1)
            given = (training, run_steps, self._went)
            training.thread = threading.Thread(target=self._train, args=given, name="training")
            self._training = training
            training.thread.start()

    def stop(self) -> None:
        """Stops the training in a committed state. The next training continues from there."""
        self._training.stop.set()

    def _train(self, training: TrainingView, run_steps: int | None, went: int) -> None:
        report = error = None
        try:
            report = self._model.train(run_steps=run_steps, stop=training.stop.is_set, on_progress=training.tell)
        except BespokeError as raised:
            error = str(raised)
        with self._looking:  # a note that is forgotten from here on drops this report too
            version, hidden = 0, None
            try:
                seen = self._look(thorough=True)
                version, hidden = seen.version, None if self._stands(report, seen, went) else _WITHDRAWN
            except BespokeError as raised:
                hidden = str(raised)
            with self._lock:
                if hidden is not None:
                    training = self._training = TrainingView(training.number + 1)  # without the losses
                training.end(version, None if hidden else report, hidden or error)

    def _stands(self, report: TrainReport | None, seen: Seen, went: int) -> bool:
        """Whether the report still holds. Forgetting an example deletes the version or the unfinished run that saw it."""
        if report is None or report.accepted is False:
            return self._watch.notes.went == went
        if report.accepted:
            return any(version.run_id == report.run for version in seen.versions)
        return seen.run == report.run

    # ---- answers ---------------------------------------------------------------------------------------------------------

    def ask(self, question: str, *, base: bool = False) -> Begun:
        """Returns the pieces of the answer of now, or of the base model. An error is raised at once, not with the first piece.

        Waits a while for another answer, since one that the user stopped ends only with its next piece.
        """
        question = question.strip()
        if not question:
            raise DataError("the question", got="no words", expected="something to answer", next_step="Write something")
        if self._training.runs():
            raise Busy(
                "the model", got="a question while it trains", expected="no training", next_step="Wait for its end"
            )
        prompt = [{"role": "user", "content": question}] if self._model.has_turns else question
        while True:
            version = 0 if base else self._see().version
            answer = (self._base if base else self._model).generate(prompt, max_tokens=ANSWER_TOKENS)
            begun = Begun(self._answers.growing(question, version, self._while_there(self._alone(answer))))
            if base or self._see().version == version:
                return begun  # it has begun, so all its pieces are of one version
            begun.close()

    def correct(self, question: str, better: str) -> dict[str, Any]:
        """Adds what the user made of the answer of now to the examples."""
        better = better.strip()
        answer = self._answers.of(self._see().version, question)
        if not better or not answer or better == answer.strip():
            raise DataError(
                "the correction",
                got="no answer to correct" if not answer else "the same words" if better else "no words",
                expected="an answer, and another one that is better",
                next_step="Ask, and write what the answer should have been",
            )
        if not self._model.has_turns:
            return asdict(self._model.examples.add({"prompt": question, "chosen": better, "rejected": answer}))
        asked = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return asdict(self._model.correct(asked, better))

    def _alone(self, pieces: Iterator[str]) -> Generator[str]:
        """Yields the pieces while no other answer is given."""
        if not self._answering.acquire(timeout=TURN_SECONDS):
            raise Busy(
                "the model",
                got="a question while it answers another one",
                expected="one question at a time",
                next_step="Wait for that answer",
            )
        try:
            yield from pieces
        finally:
            self._answering.release()

    def _while_there(self, pieces: Generator[str]) -> Generator[str]:
        """Yields the pieces, with a look at the state before each and after the last."""
        with closing(pieces):
            for piece in pieces:
                self._see()
                yield piece
            self._see()

    # ---- versions --------------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        try:
            self._model.rollback()
        finally:
            self._see(thorough=True)

    def reset(self) -> None:
        try:
            self._model.reset()
        finally:
            self._see(thorough=True)


class Begun(Iterator[str]):
    """The pieces of an answer, of which the first one is there. `close` ends the answer."""

    def __init__(self, pieces: Generator[str]) -> None:
        self._pieces = pieces
        self._first: str | None = next(pieces, "")

    def __next__(self) -> str:
        if self._first is None:
            return next(self._pieces)
        first, self._first = self._first, None
        return first

    def close(self) -> None:
        self._pieces.close()


def _object(given: Any) -> dict[str, Any]:
    return given if isinstance(given, dict) else {}


def _number(given: Any) -> int:
    return given if type(given) is int else 0
