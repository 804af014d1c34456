# SPDX-License-Identifier: Apache-2.0
"""Nothing that the page holds or serves has words of a version that was deleted, by this process or another, or anything of a run
that saw what was forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.errors import StateError
from bespoke.ui.base import BaseModel
from bespoke.ui.desk import Desk
from tests.unit.ui.pages import QUESTION, SLOW, asked, ended, expect, opened_page, served, trains, until

pytestmark = pytest.mark.xdist_group("cli")
QUESTION_ANSWERED = re.compile(".{20,}", re.DOTALL)


def otherwise(bundle: Path, state: Path, does: Callable[[PersonalModel], Any]) -> None:
    """Another client of the same state."""
    with PersonalModel.open(bundle, state) as model:
        does(model)


def texts(found: Any) -> Iterator[str]:
    """All that are in it."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for one in found.values() if isinstance(found, dict) else found:
            yield from texts(one)


ENDS = {
    "forgotten on the page": lambda desk, bundle, state: desk.forget("note 3"),
    "forgotten elsewhere": lambda desk, bundle, state: otherwise(
        bundle, state, lambda model: model.examples.forget("note 3")
    ),
    "replaced elsewhere": lambda desk, bundle, state: otherwise(
        bundle,
        state,
        lambda model: (model.examples.forget("note 3"), model.examples.add({"text": "Soup"}, id="note 3")),
    ),
    "rolled back on the page": lambda desk, bundle, state: desk.rollback(),
    "rolled back elsewhere": lambda desk, bundle, state: otherwise(bundle, state, lambda model: model.rollback()),
    "reset on the page": lambda desk, bundle, state: desk.reset(),
    "reset elsewhere": lambda desk, bundle, state: otherwise(bundle, state, lambda model: model.reset()),
}


ALWAYS = ("forgotten elsewhere", "rolled back on the page")


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=() if name in ALWAYS else pytest.mark.slow, id=name) for name, end in ENDS.items()]
)
def test_answers_and_reports_go_with_their_version(end: Any, desk: Desk, bundle: Path, state: Path) -> None:
    before = asked(desk)
    view = trains(desk)
    assert view["training"]["report"]["accepted"]
    assert view["training"]["losses"]
    after, only_after = asked(desk), asked(desk, "The big dog")
    assert {after, only_after} <= set(texts(desk.view({})))
    end(desk, bundle, state)
    view = desk.view({})
    assert view["version"] == 0
    assert not {after, only_after, "The big dog"} & set(texts(view))
    training = view["training"]
    assert (training["losses"], training["footprints"], training.get("report"), training["error"]) == (
        [],
        [],
        None,
        None,
    )
    by_base = [one["now"] for one in view["asked"]["list"]]
    assert by_base == ([] if view["went"] else [before])  # a question may have the note's own words


def test_an_answer_ends_where_its_version_is_deleted_while_it_is_given(desk: Desk, bundle: Path, state: Path) -> None:
    trains(desk)
    pieces = desk.ask(QUESTION)
    said = next(pieces) + next(pieces)
    otherwise(bundle, state, lambda model: model.examples.forget("note 3"))
    with pytest.raises(StateError, match="Ask again"):
        next(pieces)
    assert desk.view({})["asked"]["list"] == []
    pieces = desk.ask(QUESTION)
    assert said != ""
    next(pieces)
    desk.forget("note 4")  # the base model, which answers, does not know it; the question may
    with pytest.raises(StateError, match="Ask again"):
        list(pieces)
    assert desk.view({})["asked"]["list"] == []


def test_a_question_does_not_wait_for_an_answer_that_an_error_has_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who handles the error may keep it for long, and with it all that its traceback refers to."""
    pieces = desk.ask(QUESTION)
    next(pieces)
    desk.forget("note 3")
    with pytest.raises(StateError, match="Ask again") as kept:
        list(pieces)
    monkeypatch.setattr("bespoke.ui.desk.TURN_SECONDS", 0.1)
    assert asked(desk)
    assert kept.tb is not None


def test_a_training_whose_note_is_forgotten_leaves_nothing(desk: Desk) -> None:
    desk.train(None)
    until(lambda: desk.view({})["training"]["losses"], "a step")
    assert desk.forget("note 3")["run_stopped"]
    training = ended(desk)["training"]
    assert (training["losses"], training["footprints"], training.get("report")) == ([], [], None)
    assert "A note was forgotten while it trained" in training["error"]


def test_a_training_that_did_not_see_what_is_forgotten_keeps_its_report(desk: Desk) -> None:
    desk.train(None)
    until(lambda: desk.view({})["training"]["losses"], "a step")
    added = desk.add("", "Soup")
    assert not desk.forget(added["id"])["run_stopped"]
    training = ended(desk)["training"]
    assert training["report"]["accepted"]
    assert training["error"] is None


def test_what_went_wrong_in_a_training_goes_with_a_note(bundle: Path, state: Path) -> None:
    with PersonalModel.open(bundle, state, memory_mb=1) as model:
        desk = Desk(model, state, BaseModel(bundle))
        assert "Raise the memory budget" in trains(desk)["training"]["error"]
        desk.forget("note 3")
        assert desk.view({})["training"]["error"] is None


def test_the_browser_keeps_nothing_either(browser: Any, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found, opened_page(browser, found.link) as page:
        page.fill("#completion", "The door code is 4711")
        page.click("#add button")
        expect(page, "#count").to_have_text("25")
        page.click("#begin")
        page.get_by_text("version 1 answers").wait_for(timeout=4 * SLOW)  # a whole training
        page.fill("#question", QUESTION)
        page.click("#ask-button")
        expect(page, ".sides > :last-child p").to_have_text(QUESTION_ANSWERED)
        expect(page, "#ask-button").to_be_enabled()
        answer = page.locator(".sides > :last-child p").inner_text()
        note = found.does("/view")["notes"]["new"][-1]
        assert all(words in holds(page) for words in (answer, QUESTION, note["words"], "best step"))
        otherwise(bundle, state, lambda model: model.examples.forget(note["id"]))
        page.get_by_text("the base model answers").wait_for()
        left = holds(page)
        assert not [words for words in (answer, QUESTION, note["words"], note["id"], "best step") if words in left]
        assert page.input_value("#question") == ""


def holds(page: Any) -> str:
    """What stands on the page and in its script's own variables."""
    names = "asked, growing, editing, losses, footprints, report, problem, has, [...lines.values()].map((one) => one.outerHTML)"
    return str(page.content() + page.evaluate(f"JSON.stringify([{names}])"))
