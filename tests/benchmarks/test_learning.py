# SPDX-License-Identifier: Apache-2.0
"""The harness of tests/benchmarks/learning.py: which rate it takes, what it makes of its lines, which rows it draws."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import learning
from tests.benchmarks.learning_data import load
from tests.benchmarks.learning_picture import draw
from tests.benchmarks.learning_table import (
    COLUMNS,
    at_taken_rate,
    best_rates,
    beyond,
    points,
    read_runs,
    settings,
    table,
)
from tests.conftest import REPOSITORY


def run(**given: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS),
        "data": "snips",
        "method": "mesp",
        "curve": [[10, 3.0], [20, 2.0]],
        "rows": 48,
        **given,
    }


def test_the_best_rate_is_of_the_lowest_loss_whatever_the_accuracy() -> None:
    runs = [
        run(rate=1.0, accuracy=0.5, loss=2.5),
        run(rate=2.0, accuracy=0.6, loss=3.0),
        run(rate=3.0, accuracy=0.4, loss=2.0),
    ]
    assert best_rates(runs) == [3.0, 1.0, 2.0]
    assert best_rates([run(rate=1.0, loss=2.0), run(rate=2.0, loss=1.5), run(rate=3.0, loss=math.nan)]) == [
        2.0,
        1.0,
        3.0,
    ]


@pytest.mark.parametrize(
    ("rates", "best", "more"),
    [([1, 2, 4], 2, None), ([1, 2, 4], 4, 8), ([4, 1, 2], 1, 0.5), ([1e-3, 5e-3], 5e-3, 2.5e-2), ([1.0], 1.0, None)],
)
def test_a_rate_at_the_edge_asks_for_one_beyond(rates: list[float], best: float, more: float | None) -> None:
    assert beyond(rates, best) == (None if more is None else pytest.approx(more))


def lines(*runs: dict[str, Any]) -> str:
    cells = [["" if one[name] is None else json.dumps(one[name]) for name in COLUMNS] for one in runs]
    return "".join("\t".join(row) + "\n" for row in (COLUMNS, *cells))


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "runs.tsv"
    whole = lines(run(phase="search", rate=1e-3), run(phase="search", rate=1e-2, loss=math.inf))
    file.write_text(whole)
    assert [one["rate"] for one in read_runs(file)] == [1e-3, 1e-2]
    assert read_runs(file)[1]["loss"] == math.inf
    file.write_text(whole[:-5])
    assert [one["rate"] for one in read_runs(file)] == [1e-3]
    file.write_text("other\tcolumns\n")
    with pytest.raises(SystemExit, match="other columns"):
        read_runs(file)


def test_the_table_has_mean_and_spread_beside_chance_majority_and_zero_shot() -> None:
    compared = {"chance": 1 / 7, "majority": 0.2, "guess_loss": 0.5, "judged": 10}
    zero = run(phase="zero-shot", loss=5.0, accuracy=0.1, macro_f1=0.05, recipe="a small Llama", **compared)
    searched = [run(phase="search", rate=rate, loss=loss) for rate, loss in ((1e-3, 2.0), (1e-2, 1.5), (1e-1, 2.5))]
    both = {"phase": "test", "rate": 1e-2, "macro_f1": 0.5, "loss": 1.0, "steps": 40, "units": 480}
    tested = [
        run(**both, seed=seed, accuracy=right, curve=[[240, 2.0], [480, last]])
        for seed, right, last in ((1, 0.5, 1.0), (2, 0.7, 1.2))
    ]
    note, _, head, _, *rows = table([zero, *searched, *tested]).splitlines()
    assert "a small Llama; 48 rows to train on, 10 to test on; chance 14.3%, always the commonest label 20.0%" in note
    # The root of 1/7 * 6/7 / 10.
    assert note.endswith("from the draw of test rows, 11.1%; loss of a guess among the labels 0.500.")
    assert "| accuracy | macro F1 |" in head
    assert rows[0] == "| zero-shot | - | - | - | 0 | 0 | 10.0% | 5.0% | 5.000 | - |"
    # The sample standard deviation of 0.5 and 0.7 is 0.1414.
    assert rows[1].startswith("| mesp | 0.01 | no | 2 | 40 | 480 | 60.0% ± 14.1% | 50.0% ± 0.0% | 1.000 ± 0.000 |")
    assert rows[1].endswith("| 2.00 ± 0.00, 1.10 ± 0.14 |")


def test_the_curves_are_of_the_rate_in_the_table_and_stand_in_the_middle_of_their_part(tmp_path: Path) -> None:
    zero = run(phase="zero-shot", loss=5.0)
    refused = run(phase="test", rate=1e-1, seed=1, curve=[[240, 9.0], [480, 9.0]])
    seeds = [
        run(phase="test", rate=1e-2, seed=seed, curve=[[240, 2.0], [480, last]]) for seed, last in ((1, 1.0), (2, 1.2))
    ]
    assert at_taken_rate([zero, refused, *seeds], "mesp") == seeds
    (first, begun, no_spread), (second, ended, spread) = points(seeds)
    assert (first, second) == (120, 360)
    assert (begun, no_spread) == (2.0, 0.0)
    assert (ended, spread) == pytest.approx((1.1, math.sqrt(0.02)))
    draw([zero, refused, *seeds], tmp_path / "curves.svg")
    written = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert ">snips</text>" in written
    draw([zero, refused, *seeds], tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == written


def test_the_page_says_what_the_runs_and_the_settings_say() -> None:
    page = (REPOSITORY / "docs" / "explanation" / "learning.md").read_text(encoding="utf-8")
    folder = REPOSITORY / "tests" / "benchmarks"
    assert table(read_runs(folder / "learning.tsv")) in page
    assert settings(tomllib.loads((folder / "learning.toml").read_text(encoding="utf-8"))) in page


@pytest.mark.slow
def test_rows_to_train_to_choose_by_and_to_test_are_apart_and_always_the_same(data_folder: Path) -> None:
    for name in ("snips", "banking77", "shakespeare", "wikitext"):
        data = load(name, data_folder, 40, 20, 30)
        parts = [[json.dumps(example) for example in part.examples] for part in (data.train, data.valid, data.test)]
        assert [len(part) for part in parts] == [40, 20, 30]
        assert len({example for part in parts for example in part}) == 90
        assert load(name, data_folder, 40, 20, 30).test.examples == data.test.examples
    snips = load("snips", data_folder, 40, 20, 30).test.task
    assert snips is not None
    assert len(snips.labels) == 7
    assert snips.rows[0].right[0] in snips.labels
    assert snips.rows[0].prompt.endswith("\nLabel:")


@pytest.mark.slow
def test_the_harness_runs_what_is_missing_and_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the smallest configuration: the device core trains and answers, from a model that is pretrained here."""
    config = tomllib.loads((REPOSITORY / "tests" / "benchmarks" / "learning_tiny.toml").read_text(encoding="utf-8"))
    results = tmp_path / "runs.tsv"
    results.write_text("\t".join(COLUMNS) + "\n")
    monkeypatch.setattr(learning, "CACHE", tmp_path)
    learning.complete(config, "snips", "mezo", results)
    runs = read_runs(results)
    assert [(one["phase"], one["seed"]) for one in runs] == [
        ("zero-shot", None),
        ("search", 0),
        ("test", 1),
        ("test", 2),
    ]
    assert all(math.isfinite(one["loss"]) and 0 <= one["accuracy"] <= 1 for one in runs)
    assert all(one["units"] <= config["units"] and len(one["curve"]) > 1 for one in runs[2:])
    # A guess: as probable as any label, over a label's tokens and what ends it.
    assert 0 < runs[0]["guess_loss"] < math.log(7)
    written = results.read_text()
    learning.complete(config, "snips", "mezo", results)
    assert results.read_text() == written


@pytest.mark.parametrize(("name", "rates"), [("learning", 4), ("learning_tiny", 1)])
def test_a_configuration_names_what_there_is(name: str, rates: int) -> None:
    config = tomllib.loads((REPOSITORY / "tests" / "benchmarks" / f"{name}.toml").read_text(encoding="utf-8"))
    assert set(config["data"]) <= {"snips", "banking77", "shakespeare", "wikitext"}
    for data in config["data"].values():
        assert set(data.get("methods", config["methods"])) <= set(config["methods"])
        assert set(data.get("rates", {})) <= set(data.get("methods", config["methods"]))
        assert all(len(own) >= rates for own in data.get("rates", {}).values())
        assert min(data["train"], data["valid"], data["test"]) > 0
    assert all(len(method["rates"]) >= rates for method in config["methods"].values())
    # As many rows a step, whatever the queries.
    options = [method["options"] for method in config["methods"].values()]
    if name == "learning":
        assert {one["batch_size"] * one.get("queries", 1) for one in options} == {16}
