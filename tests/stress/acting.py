# SPDX-License-Identifier: Apache-2.0
"""A process of the stress: does one operation after the other on the state, and writes down what it meant and what it was told."""

from __future__ import annotations

import faulthandler
import itertools
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from bespoke import PersonalModel
from bespoke.errors import BespokeError, StateError
from tests.stress.bundles import NAMES
from tests.stress.journal import Journal
from tests.stress.residue import new_word

Found = TypeVar("Found")
HANG_SECONDS = 100  # the longest that a call may wait for others is 30 s for a lock of files and 30 s for SQLite's
ANOTHER_BASE = "a state of the base model"
OPENINGS = 50
SEEN = 10


@dataclass(frozen=True)
class Places:
    """Folders of the stress."""

    bundles: Path
    state: Path
    exports: Path
    journals: Path

    @property
    def stop(self) -> Path:
        """While this file is there, everyone ends where it is."""
        return self.journals / "stop"

    @property
    def found(self) -> Path:
        """The state as it was when it was last looked at, before the open that ends what was broken off."""
        return self.journals / "state as found"

    def stopped(self) -> bool:
        return self.stop.exists()


@dataclass(frozen=True)
class Outcome(Generic[Found]):
    value: Found | None
    error: BespokeError | None = None


class Acting:
    """`name` is new for each process, and that of its journal."""

    def __init__(self, places: Places, name: str, seed: int) -> None:
        self.places, self.name, self._seed = places, name, seed
        self.chance = random.Random(f"{seed} {name}")
        self.bundle = self.chance.choice(NAMES)
        self._journal = Journal(places.journals / f"{name}.jsonl")
        self._forks = itertools.count(1)
        self._stacks = (places.journals / f"{name}.stacks").open("w")

    def forked(self) -> Acting:
        """For a process that is about to be forked: with a journal of its own."""
        child = Acting(self.places, f"{self.name}.{next(self._forks)}", self._seed)
        child.bundle = self.bundle
        return child

    # ---- operations ------------------------------------------------------------------------------------------------------

    def do(
        self, op: str, call: Callable[[], Found], note: Callable[[Found], Any] = lambda _: True, **intent: Any
    ) -> Outcome[Found]:
        """From any thread. `note`: what is written down of what the call returned."""
        number = self._journal.begin(op, bundle=self.bundle, **intent)
        try:
            value = call()
            self._journal.end(number, "ack", note(value))
            return Outcome(value)
        except BespokeError as error:
            self._journal.end(number, "error", [type(error).__name__, error.subject, error.got])
            return Outcome(None, error)
        except Exception:
            self._journal.end(number, "raised", traceback.format_exc()[-3000:])
            return Outcome(
                None, StateError("the stress", got="an error that is none of ours", expected="", next_step="")
            )

    def watched(self, call: Callable[[], Found], seconds: float = HANG_SECONDS) -> Found:
        """On the main thread: the process ends with its stacks written down where the call hangs."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stacks)
        try:
            return call()
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pause(self, most: float) -> None:
        time.sleep(self.chance.uniform(0, most))

    # ---- what all of them do ---------------------------------------------------------------------------------------------

    def opened(self, engine: str | None = None) -> PersonalModel | None:
        """With the bundle of the base that the state is of now; None: it is time to stop."""
        engine = engine or self.chance.choice(("executorch", "torch"))
        for _ in range(OPENINGS):
            if self.places.stopped():
                return None
            call = partial(PersonalModel.open, self.places.bundles / self.bundle, self.places.state, engine=engine)
            outcome = self.do("open", call, engine=engine)
            if outcome.value is not None:
                return outcome.value
            if outcome.error is not None and ANOTHER_BASE in outcome.error.got:
                self.bundle = NAMES[1 - NAMES.index(self.bundle)]
            else:
                self.pause(0.2)
        raise AssertionError(f"not opened in {OPENINGS} tries")

    def example(self) -> tuple[str, dict[str, Any]]:
        """An id of up to 249 characters and an example whose words are in no other."""
        id = ".".join(new_word(self.chance) for _ in range(self.chance.randint(1, 10)))
        word = new_word(self.chance)
        if self.chance.random() < 0.5:
            return id, {"text": f"the cat sat on {word} and the dog ran"}
        return id, {"prompt": "what does the cat say? ", "completion": f"the cat says {word}"}

    def add(self, model: PersonalModel, given: tuple[str, dict[str, Any]] | None = None, **how: Any) -> Outcome[Any]:
        id, example = given or self.example()
        return self.do(
            "add",
            lambda: model.examples.add(example, id=id),
            lambda added: {"created": added.created, "split": added.split},
            id=id,
            example=example,
            **how,
        )

    def some(self, ids: list[str]) -> list[str]:
        """As many as are written down of those that were seen."""
        return self.chance.sample(ids, min(len(ids), SEEN))

    def forget(self, model: PersonalModel, id: str, **how: Any) -> Outcome[Any]:
        return self.do(
            "forget", lambda: model.examples.forget(id), lambda done: {"example": done.example}, id=id, **how
        )

    def listed(self, model: PersonalModel, **how: Any) -> list[str]:
        outcome = self.do("list", model.examples.list, lambda found: self.some([one.id for one in found]), **how)
        return [one.id for one in outcome.value or []]

    def train(self, model: PersonalModel, in_this_process: bool = False, **how: Any) -> Outcome[Any]:
        """A few steps. `in_this_process`: by the library, with the engine that it was built with."""
        most_steps, method = self.chance.randint(1, 8), self.chance.choice(("mesp", "mesp", "mezo"))
        names = ("run", "total_steps", "accepted", "stopped_because")

        def call() -> dict[str, Any]:
            if in_this_process:
                from bespoke.core.handle import Request

                report = model._core.train(Request(most_steps=most_steps, method=method), None, None, None)
            else:
                report = model.train(most_steps=most_steps, method=method).as_dict()
            return {name: report[name] for name in names}

        return self.do(
            "train", call, lambda report: report, most_steps=most_steps, method=method, library=in_this_process, **how
        )

    def generate(self, model: PersonalModel, **how: Any) -> Outcome[Any]:
        tokens = self.chance.randint(1, 6)
        return self.do(
            "generate", lambda: "".join(model.generate("the cat ", max_tokens=tokens)), lambda _: True, **how
        )
