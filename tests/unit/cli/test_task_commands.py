# SPDX-License-Identifier: Apache-2.0
"""`train --task` and `evaluate --task`: a CSV of labels goes in, and how right the model is comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.native.chat_folder import folder
from tests.unit.cli.commands import bespoke
from tests.unit.cli.conftest import Built, Trained
from tests.unit.golden.bundles import rewrite_manifest

__all__ = ["folder"]

pytestmark = pytest.mark.xdist_group("cli")

LABELS = ("--task", "labels")


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    path = tmp_path / "tickets.csv"
    rows = (
        "My card is gone,card",
        "I forgot my PIN,pin",
        "Where is my card?,card",
        "A new PIN please,pin",
        "Card!,card",
    )
    path.write_text("\n".join(("note,label", *rows)) + "\n")
    return path


def test_evaluate_says_how_right_the_labels_are(built: Built, trained: Trained, tickets: Path) -> None:
    asked = ("evaluate", built.bundle, "--state", trained.state, "--examples", tickets, *LABELS, "--field", "text=note")
    found = bespoke(*asked, "--format", "json").ok().json
    assert (found["task"], found["rows"], found["options"], found["chance"], found["majority"]) == (
        "labels",
        5,
        2,
        1 / 2,
        3 / 5,
    )
    assert 0 <= found["macro_f1"] <= 1
    assert found["accuracy"] in [right / 5 for right in range(6)]
    assert "wrong" not in found
    text = bespoke(*asked, "--label", "card", "--label", "pin", "--label", "loan", "--wrong").ok().out
    assert "3 labels" in text
    assert "chance 33.3%" in text
    listed = bespoke(*asked, "--wrong", "--format", "json").ok().json
    assert len(listed["wrong"]) == round(5 * (1 - found["accuracy"]))
    assert all(row["answer"] != row["right"][0] for row in listed["wrong"])


def test_train_takes_the_rows_of_a_task(built: Built, trained: Trained, tickets: Path, tmp_path: Path) -> None:
    shutil.copytree(trained.state, tmp_path / "s")
    asked = ("--examples", tickets, *LABELS, "--field", "text=note", "--run-steps", "1")
    assert "5 examples added" in bespoke("train", built.bundle, "--state", tmp_path / "s", *asked).ok().err
    listed = bespoke("examples", "list", built.bundle, "--state", tmp_path / "s", "--format", "json").ok().out
    assert "My card is gone\\nLabel:" in listed


def test_train_refuses_a_task_where_its_questions_would_be_trained(folder: Path, tickets: Path, tmp_path: Path) -> None:
    """A bundle with chat turns and train_on="user", before the user's state is made."""
    bundle = Path(shutil.copytree(folder / "bundle", tmp_path / "like_me.bundle"))
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["text"]["train_on"] = "user"
    rewrite_manifest(bundle, manifest)
    asked = ("--examples", tickets, *LABELS, "--field", "text=note", "--run-steps", "1", "--format", "json")
    answer = bespoke("train", bundle, "--state", tmp_path / "s", *asked)
    assert (answer.code, answer.json["error"]["subject"]) == (2, "--task labels")
    assert answer.json["error"]["next_step"] == "Build a bundle with --train-on assistant"
    assert not (tmp_path / "s").exists()


def test_a_row_that_cannot_be_used_is_named_with_what_to_do(built: Built, trained: Trained, tickets: Path) -> None:
    asked = ("evaluate", built.bundle, "--state", trained.state, "--examples", tickets, *LABELS, "--format", "json")
    answer = bespoke(*asked)
    assert answer.code == 5
    error = answer.json["error"]
    assert error["subject"] == f"{tickets}, row 2"
    assert error["next_step"] == "Give every row this key, or name the column that holds it: --field NAME=COLUMN"
    answer = bespoke(*asked, "--field", "text=note", "--label", "card", "--label", "loan")
    assert (answer.code, answer.json["error"]["subject"]) == (5, f"{tickets}, row 3: label")
    assert answer.json["error"]["next_step"].endswith("--label for each")


@pytest.mark.parametrize(
    "options",
    [
        ("--task", "sentiment"),
        LABELS,
        ("--examples", "a.csv", *LABELS, "--examples-format", "text"),
        ("--wrong",),
        ("--examples", "a.jsonl", "--task", "calls", "--label", "a"),
        ("--examples", "a.csv", "--label", "a"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...]) -> None:
    assert bespoke("evaluate", "nosuch.bundle", "--state", "nosuch", *options).code == 2
