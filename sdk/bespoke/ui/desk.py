# SPDX-License-Identifier: Apache-2.0
"""What the page shows and does: one user's model, one training at a time, and answers of the adapters that there were."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bespoke.errors import BespokeError, Busy, DataError
from bespoke.personal_model import PersonalModel
from bespoke.rules.report import Progress, TrainReport

__all__ = ["Desk"]

ANSWER_TOKENS = 120
ASKED_KEPT = 20  # questions
_SHOWN = (
    "accepted", "why_refused", "stopped_because", "steps", "total_steps", "judged_on", "judged_examples", "best_step", "gain",
    "validation_loss_before", "validation_loss", "general_loss_before", "general_loss", "peak_bytes",
)  # fmt: skip


@dataclass
class _Training:
    """A call of `train` in a thread of its own, as the page draws it."""

    thread: threading.Thread | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    phase: str = "open"
    step: int = 0
    steps: int = 0
    losses: list[tuple[int, float | None]] = field(default_factory=list)
    footprints: list[int] = field(default_factory=list)

    def tell(self, progress: Progress) -> None:
        self.phase, self.step, self.steps = progress.phase, progress.step, progress.steps
        self.footprints.append(progress.footprint_bytes)
        if progress.loss is not None:
            self.losses.append((progress.step, _finite(progress.loss)))


class Desk:
    """From any thread. `close` stops a training in a committed state."""

    def __init__(self, model: PersonalModel) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._training = _Training()
        self._report: dict[str, Any] | None = None
        self._error: str | None = None
        self._asked: dict[str, dict[int, str]] = {}  # question -> version -> answer; version 0 is the base model

    def close(self) -> None:
        self.stop()
        if (thread := self._training.thread) is not None:
            thread.join()

    def view(self) -> dict[str, Any]:
        """All that the page shows, as JSON has it."""
        versions, training = self._model.versions(), self._training
        version = versions[-1].id if versions else 0
        return {
            "examples": [{"id": one.id, "split": one.split, "words": words_of(one.json)} for one in self._model.examples.list()],
            "versions": [{"id": one.id, "step": one.step, "accepted_at": one.accepted_at} for one in versions],
            "version": version,
            "unfinished": self._model.current_run() is not None,
            "limit_bytes": self._model.limit_bytes,
            "training": {
                "runs": self._runs(), "phase": training.phase, "step": training.step, "steps": training.steps,
                "losses": list(training.losses), "footprints": list(training.footprints),
            },
            "report": self._report,
            "error": self._error,
            "asked": [_compared(question, answers, version) for question, answers in list(self._asked.items())],
        }  # fmt: skip

    # ---- examples --------------------------------------------------------------------------------------------------------

    def add(self, prompt: str, completion: str, *, must_know: bool = False) -> dict[str, Any]:
        """A question with its answer, or, without a question, a text. `must_know`: it is never held out."""
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
        return asdict(self._model.examples.forget(id))

    # ---- training --------------------------------------------------------------------------------------------------------

    def train(self, steps: int | None) -> None:
        """Begins it; `view` says how it goes on. Busy while one runs."""
        with self._lock:
            if self._runs():
                raise Busy("the model", got="a training while one runs", expected="one at a time", next_step="Wait for its end")
            self._model.check_settings(steps)
            self._training, self._report, self._error = _Training(), None, None
            thread = threading.Thread(target=self._train, args=(self._training, steps), name="training")
            self._training.thread = thread
            thread.start()

    def stop(self) -> None:
        """In a committed state; the next training goes on from there."""
        self._training.stop.set()

    def _train(self, training: _Training, steps: int | None) -> None:
        try:
            self._report = shown(self._model.train(steps, stop=training.stop.is_set, on_progress=training.tell))
        except BespokeError as error:
            self._error = str(error)

    def _runs(self) -> bool:
        thread = self._training.thread
        return thread is not None and thread.is_alive()

    # ---- answers ---------------------------------------------------------------------------------------------------------

    def ask(self, question: str) -> Iterator[str]:
        """Pieces of the answer of the adapter that answers now. What is wrong is said at once, and not with the first piece."""
        question = question.strip()
        if not question:
            raise DataError("the question", got="no words", expected="something to answer", next_step="Write something")
        if self._runs():
            raise Busy("the model", got="a question while it trains", expected="no training", next_step="Wait for its end")
        version = self._version()
        prompt = [{"role": "user", "content": question}] if self._model.has_turns else question
        return self._answer(question, version, self._model.generate(prompt, max_tokens=ANSWER_TOKENS))

    def _answer(self, question: str, version: int, pieces: Iterator[str]) -> Iterator[str]:
        said = ""
        for piece in pieces:
            said += piece
            yield piece
        with self._lock:
            answers = self._asked.pop(question, {})  # the newest question is the last
            self._asked[question] = {**answers, version: said}
            while len(self._asked) > ASKED_KEPT:
                del self._asked[next(iter(self._asked))]

    def _version(self) -> int:
        versions = self._model.versions()
        return versions[-1].id if versions else 0

    # ---- versions --------------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        self._model.rollback()

    def reset(self) -> None:
        self._model.reset()


def words_of(example: dict[str, Any]) -> str:
    """An example in one line of words."""
    if "messages" in example:
        return " → ".join(str(message["content"]) for message in example["messages"])
    if "prompt" in example:
        return f"{example['prompt']} → {example.get('completion', example.get('chosen', ''))}"
    return str(example["text"]) if "text" in example else f"{len(example['tokens'])} tokens"


def shown(report: TrainReport) -> dict[str, Any]:
    """What the page shows of a report; the table has all of it."""
    found = {name: getattr(report, name) for name in _SHOWN}
    judgements = [(one.step, _finite(one.loss)) for one in report.judgements]
    plain = {name: _finite(value) if isinstance(value, float) else value for name, value in found.items()}
    return {**plain, "judgements": judgements, "table": str(report)}


def _compared(question: str, answers: dict[int, str], version: int) -> dict[str, Any]:
    """The answer of now beside the newest one of an adapter before; None: not asked."""
    before = max((one for one in answers if one < version), default=None)
    return {
        "question": question, "before": None if before is None else {"version": before, "text": answers[before]},
        "now": answers.get(version),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no other
