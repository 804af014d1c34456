# SPDX-License-Identifier: Apache-2.0
"""Questions that nobody has to type, the base model's answers next to those of now, and answers that the user corrects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.bundle.manifest import Manifest
from bespoke.data.rows import TokenRow, TokenRows
from bespoke.errors import Busy, DataError
from bespoke.ui.base import BaseModel
from bespoke.ui.desk import Desk
from tests.unit.personal_model.tiny import changed
from tests.unit.ui.pages import QUESTION, asked, expect, opened_page, served, trains, until

pytestmark = pytest.mark.xdist_group("cli")
TAUGHT = {"prompt": "The name of the dog is", "completion": " Rex."}
ANSWERED = {"Once there was a cat": " It was red.", "The sun": " was warm.", "A boy saw": " a big tree."}


@pytest.fixture
def everyday(bundle: Path, stories: Path, tmp_path: Path) -> Path:
    """The bundle with three behaviour rows."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(stories / "tokenizer.json"))
    rows = []
    for prompt, answer in ANSWERED.items():
        tokens = tokenizer.encode(prompt + answer).ids
        begin = len(tokenizer.encode(prompt).ids)
        assert tokens[:begin] == tokenizer.encode(prompt).ids
        rows.append(TokenRow(np.array(tokens, np.int32), (np.arange(len(tokens)) >= begin).astype(np.uint8)))
    name = "data/behaviour.safetensors"

    def with_rows(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"data": manifest.data.model_copy(update={"behaviour": name})})

    return changed(bundle, tmp_path / "everyday", with_rows, files={name: TokenRows.from_rows(rows).to_bytes()})


def test_the_base_model_answers_after_a_training_as_before_it(desk: Desk, bundle: Path, state: Path) -> None:
    before = asked(desk)
    assert trains(desk)["training"]["report"]["accepted"]
    with PersonalModel.open(bundle, state) as model:  # the page of another day, which has no answers yet
        later = Desk(model, state, BaseModel(bundle))
        after = asked(later)
        assert later.view({})["asked"]["list"] == [{"question": QUESTION, "base": None, "now": after}]
        assert "".join(later.ask(QUESTION, base=True)) == before != after
        assert later.view({})["asked"]["list"] == [{"question": QUESTION, "base": before, "now": after}]


def test_what_is_tried_is_a_question_of_the_users_own_and_those_of_the_bundle(everyday: Path, tmp_path: Path) -> None:
    with PersonalModel.open(everyday, tmp_path / "state") as model:
        desk = Desk(model, tmp_path / "state", BaseModel(everyday))
        assert desk.view({})["tries"] == list(ANSWERED)
        model.examples.add({"text": "Soup"})
        added = model.examples.add(TAUGHT)
        assert desk.view({})["tries"] == [TAUGHT["prompt"], *ANSWERED]
        assert "tries" not in desk.view({"tries": [TAUGHT["prompt"], *ANSWERED]})
        asked(desk, next(iter(ANSWERED)))
        desk.forget(added.id)
        assert desk.view({})["tries"] == list(ANSWERED)
        assert desk.view({})["asked"]["list"] == []


def test_an_answer_is_corrected_with_a_note(desk: Desk) -> None:
    answer = asked(desk)
    desk.correct(QUESTION, "  there was soup. ")
    note = desk.view({})["notes"]["new"][-1]
    assert note["words"] == f"{QUESTION} → there was soup."
    (stored,) = [one.json for one in desk._model.examples.list() if one.id == note["id"]]
    assert stored == {"prompt": QUESTION, "chosen": "there was soup.", "rejected": answer}


def test_only_an_answer_of_now_is_corrected_and_with_other_words(desk: Desk) -> None:
    with pytest.raises(DataError, match="no answer to correct"):
        desk.correct(QUESTION, "Soup")
    answer = asked(desk)
    for better, got in ((" ", "no words"), (answer, "the same words")):
        with pytest.raises(DataError, match=got):
            desk.correct(QUESTION, better)
    assert trains(desk)["version"] == 1
    with pytest.raises(DataError, match="no answer to correct"):
        desk.correct(QUESTION, "Soup")


def test_notes_come_while_an_answer_is_given_and_a_training_begins(desk: Desk) -> None:
    pieces = desk.ask(QUESTION)
    next(pieces)
    desk.add("", "Soup")
    desk.train(None)
    until(lambda: desk.view({})["training"]["losses"], "a step")
    for base in (False, True):
        with pytest.raises(Busy):
            desk.ask(QUESTION, base=base)
    desk.stop()
    assert len("".join(pieces)) > 10


def test_a_question_waits_for_an_answer_that_is_being_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(desk)
    stopped = desk.ask(QUESTION)
    next(stopped)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(asked, desk)
        assert wait([waiting], timeout=0.3).not_done
        stopped.close()
        assert waiting.result(timeout=60) == whole
        begun = desk.ask(QUESTION)
        monkeypatch.setattr("bespoke.ui.desk.TURN_SECONDS", 0.1)
        with pytest.raises(Busy, match="one question at a time"):
            desk.ask(QUESTION)
        assert "".join(begun) == whole


def test_four_questions_stand_side_by_side_without_a_typed_word(browser: Any, everyday: Path, state: Path) -> None:
    with PersonalModel.open(everyday, state) as model:
        model.examples.add(TAUGHT)
        untrained = {question: "".join(model.generate(question, max_tokens=96)) for question in ANSWERED}
        assert model.train(general_tolerance=1e9).accepted
    with served(everyday, state) as found, opened_page(browser, found.link) as page:
        page.click("#try")
        expect(page, "#try").to_be_disabled()  # all four have both answers
        expect(page, "#end").to_be_disabled()
        shown = {
            one.locator("h3").inner_text(): [side.inner_text() for side in one.locator("p").all()]
            for one in page.locator(".asked").all()
        }
        assert list(shown) == [*reversed(ANSWERED), TAUGHT["prompt"]]
        for question, (base, now) in shown.items():
            assert base != now, question
            assert base.split() == untrained.get(question, base).split()


def test_the_user_stops_an_answer_and_writes_a_better_one(page: Any) -> None:
    page.locator("#examples li").nth(23).wait_for()
    page.evaluate(f"ask(once('{QUESTION}')); asking.abort()")  # as by the button, before the answer can have ended
    expect(page, "#ask-button").to_be_enabled()
    expect(page, ".asked").to_have_count(0)
    assert page.locator("#problem").is_hidden()
    page.fill("#question", QUESTION)
    page.click("#ask-button")
    edit = page.get_by_role("button", name=f"Edit the answer to: {QUESTION}")
    edit.click()
    better = page.get_by_role("textbox", name=f"A better answer to: {QUESTION}")
    answer = better.input_value()
    better.fill("there was soup.")
    page.get_by_role("button", name="Save").click()
    page.locator("#examples li", has_text=f"{QUESTION} → there was soup.").wait_for()
    expect(page, "#saved").to_contain_text("Saved as a note.")
    assert page.locator(".sides > :last-child p").inner_text() == answer  # it stays what the model said
    assert edit.evaluate("(one) => one === document.activeElement")


def test_nothing_can_be_asked_before_the_page_knows_what_there_is(browser: Any, everyday: Path, state: Path) -> None:
    with served(everyday, state) as found:
        context = browser.new_context()
        try:
            held: list[Any] = []
            context.route("**/view*", lambda route: held.append(route))
            page = context.new_page()
            with page.expect_request("**/view*"):
                page.goto(found.link)
            for button in ("#begin", "#stop", "#ask-button", "#try", "#end", "#rollback", "#reset"):
                expect(page, button).to_be_disabled()
            held[0].continue_()
            context.unroute("**/view*")
            expect(page, "#try").to_be_enabled()
        finally:
            context.close()
