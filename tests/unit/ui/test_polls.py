# SPDX-License-Identifier: Apache-2.0
"""What one look of the browser costs: little where nothing changed, and what changed where something did."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.rules.report import Progress
from bespoke.ui.base import BaseModel
from bespoke.ui.desk import Desk
from bespoke.ui.training import TrainingView
from bespoke.ui.watch import Watch
from tests.unit.ui.pages import SLOW, expect, opened_page, served

pytestmark = pytest.mark.xdist_group("cli")
MANY = 60_000


@pytest.fixture
def many(bundle: Path, tmp_path: Path) -> Path:
    """A state with MANY notes, all but the first copied by SQL: added one by one they take minutes."""
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        model.examples.add(
            {"text": "A first note, as long as notes are that somebody writes down at the end of a day."}
        )
    with sqlite3.connect(tmp_path / "state" / "state.sqlite") as database:
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
        database.execute(
            f"{numbers} INSERT INTO examples (key, id, split, json, tokens, trained_tokens, added_at, use) "
            "SELECT i, 'note ' || i, split, json, tokens, trained_tokens, added_at, use FROM n, examples WHERE key = 1"
        )
        rows = "tokens, mask, rejected_tokens, rejected_mask"
        database.execute(
            f"{numbers} INSERT INTO example_rows (example, row, {rows}) SELECT i, row, {rows} "
            "FROM n, example_rows WHERE example = 1"
        )
    database.close()
    return tmp_path / "state"


@pytest.fixture
def model(bundle: Path, state: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(bundle, state) as model:
        yield model


def counted(monkeypatch: pytest.MonkeyPatch, model: PersonalModel) -> list[int]:
    """Grows by each list of examples that is read."""
    reads: list[int] = []
    read = model.examples.list

    def reading() -> Any:
        reads.append(1)
        return read()

    monkeypatch.setattr(model.examples, "list", reading)
    return reads


def settle(state: Path, seconds: float = 60.0) -> None:
    """As if the last write had been so long ago."""
    for name in ("state.sqlite", "state.sqlite-wal"):
        os.utime(state / name, (time.time() - seconds, time.time() - seconds))


def has_all(view: dict[str, Any]) -> dict[str, Any]:
    """What the browser says that it has, after it took a first view."""
    training = view["training"]
    return {
        "notes": view["notes"]["revision"],
        "asked": view["asked"]["revision"],
        "tries": view["tries"],
        "training": {
            "number": training["number"],
            "losses": len(training["losses"]),
            "footprints": len(training["footprints"]),
        },
    }


def test_of_many_notes_a_look_sends_and_reads_what_changed(
    many: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PersonalModel.open(bundle, many) as model:
        desk, reads = Desk(model, many, BaseModel(bundle)), counted(monkeypatch, model)
        settle(many)
        first = desk.view({})
        has = has_all(first)
        assert len(first["notes"]["new"]) == first["count"] == MANY
        assert len(reads) == 1
        for _ in range(10):
            assert len(json.dumps(desk.view(has))) < 1000
        assert len(reads) == 1
        with PersonalModel.open(bundle, many) as other:
            other.examples.add({"text": "Soup"})
            added = desk.view(has)
            other.examples.forget("note 17")
            gone = desk.view({**has, "notes": added["notes"]["revision"]})
        assert [one["words"] for one in added["notes"]["new"]] == ["Soup"]
        assert gone["notes"]["gone"] == [first["notes"]["new"][16]["number"]]
        assert (added["notes"]["gone"], gone["notes"]["new"]) == ([], [])
        assert max(len(json.dumps(view)) for view in (added, gone)) < 1500
        assert len(reads) == 3


@pytest.mark.slow
def test_a_browser_lists_many_notes_and_the_one_that_comes(browser: Any, bundle: Path, many: Path) -> None:
    with served(bundle, many) as found, opened_page(browser, found.link) as page:
        page.locator("#examples li").nth(MANY - 1).wait_for(state="attached", timeout=4 * SLOW)
        expect(page, "#count").to_have_text(str(MANY))
        page.fill("#completion", "Soup")
        page.click("#add button")
        expect(page, "#examples li:last-child .words").to_have_text("Soup")
        page.locator("#examples li").nth(0).get_by_role("button").click()
        expect(page, "#examples li").to_have_count(MANY)
        expect(page, "#count").to_have_text(str(MANY))


def test_commits_of_a_training_elsewhere_cost_little(
    model: PersonalModel, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change the files and none of the notes: what takes a second to read is read every twenty seconds then."""
    now, reads = 0.0, counted(monkeypatch, model)
    watch = Watch(model, state, clock=lambda: now)
    read = model.examples.list

    def slowly() -> Any:
        nonlocal now
        now += 1.0
        return read()

    monkeypatch.setattr(model.examples, "list", slowly)
    watch.look()
    for _ in range(100):
        now += 0.3
        settle(state, 1000 - now)
        watch.look()
    assert len(reads) == 2


def test_what_was_written_at_the_same_time_is_seen(model: PersonalModel, bundle: Path, state: Path) -> None:
    """Two writes within one step of the file system's clock, after which count and times are as they were."""
    watch = Watch(model, state)
    watch.look()
    files = [state / name for name in ("state.sqlite", "state.sqlite-wal")]
    times = [os.stat(file).st_mtime_ns for file in files]
    with PersonalModel.open(bundle, state) as other:
        other.examples.forget("note 3")
        other.examples.add({"text": "Soup"})
    for file, time_ns in zip(files, times, strict=True):
        os.utime(file, ns=(time_ns, time_ns))
    watch._rest_until = 0.0
    watch.look()
    assert watch.notes.went == 1


def test_a_long_training_is_sent_from_where_the_browser_is() -> None:
    training = TrainingView(3)
    sent: list[Any] = []
    has: dict[str, Any] = {}
    for step in range(1, 10_001):
        training.tell(Progress("step", step, 10_000, math.nan if step % 7 == 0 else 1 / step, 1000 + step))
        if step % 100 == 0:
            found = json.loads(json.dumps(training.state(has), allow_nan=False))
            assert len(found["losses"]) == len(found["footprints"]) == 100
            sent += found["losses"]
            has = {"number": 3, "losses": len(sent), "footprints": len(sent)}
    assert sent == [[step, None if step % 7 == 0 else 1 / step] for step in range(1, 10_001)]
    assert len(training.state({**has, "number": 2})["losses"]) == 10_000  # it has nothing from another training


def test_a_long_training_is_drawn_with_its_extremes(page: Any) -> None:
    """As many points as can be seen: with all of them a look at a long run takes the browser longer than the time to the next."""
    expect(page, "#count").to_have_text("24")
    loss = "n === 5001 ? 9 : n === 5002 ? null : 2 - n / 9999"
    page.evaluate(f"losses = Array.from({{ length: 10000 }}, (_, n) => [n + 1, {loss}]); drawTraining(0)")
    points = str(page.locator("#losses polyline").get_attribute("points")).split()
    assert len(points) <= 800
    places, heights = zip(*((float(one) for one in point.split(",")) for point in points), strict=True)
    assert list(places) == sorted(places)
    assert (places[0], min(heights), max(heights)) == (0, 8, 112)
    assert places[heights.index(8)] == pytest.approx(200, abs=1)
    assert page.locator("#losses-words").inner_text() == "Loss 2.000 at step 1, now 1.000 at step 10000"
