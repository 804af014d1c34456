# SPDX-License-Identifier: Apache-2.0
"""What each kind of process does in a turn with the model that it has open."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from tests.stress.acting import Acting, Outcome
from tests.stress.bundles import NAMES
from tests.stress.journal import entries
from tests.stress.over_fork import use_over_fork
from tests.stress.over_threads import use_from_threads
from tests.stress.page import page_turn

EXAMPLES = 250  # about which the number of examples stays
FORMATS = ("peft", "peft", "mlx", "gguf")

Turn = Callable[[Acting, PersonalModel], object]


def trains(acting: Acting, model: PersonalModel) -> None:
    if acting.chance.random() < 0.15:
        acting.do("evaluate", lambda: model.evaluate(split="train"), lambda found: found.examples)
    else:
        acting.train(model, in_this_process=acting.chance.random() < 0.3)
    acting.pause(0.6)  # the others need the lock too


def adds(acting: Acting, model: PersonalModel) -> None:
    given = acting.example()
    acting.add(model, given)
    if acting.chance.random() < 0.1:
        acting.add(model, given)  # which is there already, unless it was forgotten
    acting.pause(0.3)


def adds_what_is_in_doubt(acting: Acting, model: PersonalModel) -> None:
    """What the adders before this one meant to add when they were killed, some of it: the same id and content once more."""
    doubts: dict[str, dict[str, Any]] = {}
    for path in sorted(acting.places.journals.glob("adder-*.jsonl"))[-4:]:
        begun: dict[int, dict[str, Any]] = {}
        for entry in entries(path):
            if entry.get("op") == "add":
                begun[entry["n"]] = entry
            else:
                begun.pop(entry.get("n", 0), None)
        if path.stem != acting.name:
            doubts |= {entry["id"]: entry["example"] for entry in begun.values()}
    for id in acting.chance.sample(sorted(doubts), min(2, len(doubts))):
        acting.add(model, (id, doubts[id]))


def forgets(acting: Acting, model: PersonalModel) -> None:
    ids = acting.listed(model)
    many = len(ids) > EXAMPLES
    for id in acting.chance.sample(ids, min(len(ids), 4 if many else 1)):
        acting.forget(model, id)
    if not many:
        acting.pause(1.0)


def exports(acting: Acting, model: PersonalModel) -> None:
    number = acting.chance.randrange(len(FORMATS))
    folder = acting.places.exports / f"{FORMATS[number]}-{number}"

    def note(_: Path) -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    acting.do("export", lambda: model.export_adapter(folder, format=FORMATS[number]), note, folder=folder.name)  # type: ignore[arg-type]
    acting.pause(0.5)


def imports(acting: Acting, model: PersonalModel) -> None:
    folder = acting.places.exports / f"peft-{acting.chance.randrange(2)}"
    if folder.exists():
        acting.do(
            "import", lambda: model.import_adapter(folder), lambda version: {"version": version}, folder=folder.name
        )
    acting.pause(1.0)


def asks(acting: Acting, model: PersonalModel) -> None:
    acting.chance.choice(
        (
            partial(acting.generate, model),
            partial(acting.do, "score", lambda: model.score("the cat ", ["sat", "ran"]), lambda scores: len(scores)),
            partial(acting.do, "classify", lambda: model.classify("the cat ", ["sat", "ran"]), lambda found: True),
            partial(acting.do, "versions", model.versions, lambda found: [one.id for one in found]),
        )
    )()
    acting.pause(0.3)


def resets(acting: Acting, model: PersonalModel) -> None:
    drawn = acting.chance.random()
    found = acting.do("versions", model.versions, lambda found: [one.id for one in found]).value
    versions = [one.id for one in found or []]
    if drawn < 0.5:
        acting.do("rollback", model.rollback, lambda found: {"version": found and found.id}, versions=versions)
    elif drawn < 0.7:
        acting.do("reset", model.reset, versions=versions)
    elif drawn < 0.9:
        acting.do("abandon", model.abandon_run, bool)
    else:
        moves_to_another_base(acting, versions)
    acting.pause(1.5)


def moves_to_another_base(acting: Acting, versions: list[int]) -> Outcome[Any]:
    other = NAMES[1 - NAMES.index(acting.bundle)]

    def call() -> bool:
        PersonalModel.reset_for_new_base(acting.places.bundles / other, acting.places.state).close()
        return True

    return acting.do("new base", call, versions=versions, to=other)


def uses_over_fork(acting: Acting, model: PersonalModel) -> None:
    use_over_fork(acting, model)
    acting.pause(0.5)


def uses_from_threads(acting: Acting, model: PersonalModel) -> None:
    use_from_threads(acting, model)
    acting.pause(0.5)


ROLES: dict[str, Turn] = {
    "trainer": trains,
    "adder": adds,
    "forgetter": forgets,
    "exporter": exports,
    "importer": imports,
    "asker": asks,
    "resetter": resets,
    "page": page_turn,
    "forker": uses_over_fork,
    "threader": uses_from_threads,
}
CAST = ("trainer", "adder", *ROLES)  # two trainers and two adders


def closes(acting: Acting, model: PersonalModel) -> None:
    acting.do("close", model.close)


def live(acting: Acting, role: str) -> None:
    """Until it is killed or told to stop: opens the model, some turns, closes it."""
    if role == "opener":
        model = acting.watched(acting.opened)
        if model is not None:
            acting.watched(partial(closes, acting, model))
        return
    turn = ROLES[role]
    while not acting.places.stopped():
        model = acting.watched(acting.opened)
        if model is None:
            return
        if role == "adder":
            acting.watched(partial(adds_what_is_in_doubt, acting, model))
        for _ in range(1 if role == "forker" else acting.chance.randint(3, 15)):  # a forker closes what it has used
            if acting.places.stopped():
                break
            acting.watched(partial(turn, acting, model))
        acting.watched(partial(closes, acting, model))
