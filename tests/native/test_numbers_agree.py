# SPDX-License-Identifier: Apache-2.0
"""Numbers that stand in two places, and rows of tokens: where they do not agree, training is refused by the core and by the
reference alike."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.bundle.manifest import Manifest
from bespoke.bundle.reader import read_bundle
from bespoke.errors import BespokeError
from bespoke.reference.train import train
from tests.native.core_lab import tiny_core_bundle
from tests.support.checks import few_of
from tests.support.reading import rows_of_split
from tests.unit.personal_model.tiny import add_numbers, changed, with_general

__all__ = ["tiny_core_bundle"]

pytestmark = pytest.mark.xdist_group("core")
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(params=few_of(("core", "reference"), ("core",)))
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def edited(source: Path, target: Path, edit: Edit) -> Path:
    def change(manifest: Manifest) -> Manifest:
        document = manifest.model_dump(mode="json")
        edit(document)
        return Manifest.model_validate_json(json.dumps(document))

    return changed(source, target, change)


def refused(bundle: Path, state: Path, side: str, **settings: Any) -> BespokeError:
    """What training says."""
    with PersonalModel.open(bundle, state, engine="executorch") as model:
        add_numbers(model)  # those that are there already change nothing
        if side == "core":
            with pytest.raises(BespokeError) as caught:
                model.train(most_steps=1, **settings)
            return caught.value
    with read_bundle(bundle) as opened, pytest.raises(BespokeError) as caught:
        train(opened, user_rows=rows_of_split(state, "train"), seed=1, **settings)
    return caught.value


METHOD: dict[str, tuple[Edit, str, str]] = {
    "a larger batch than the plan's": (lambda d: d["methods"][0]["training"].update(batch_size=64), "batch_size", "64"),
    "a smaller batch than the plan's": (lambda d: d["methods"][0]["training"].update(batch_size=1), "batch_size", "2"),
    "lengths that no plan is of": (
        lambda d: d["methods"][0]["training"].update(sequence_lengths=[8]),
        "training.sequence_lengths",
        "[8]",
    ),
    "a plan of another length than the manifest says": (
        lambda d: (
            d["methods"][0]["plans"][0].update(sequence_length=8),
            d["methods"][0]["training"].update(sequence_lengths=[16]),
            d.update(sequence_lengths=[8, 16]),
        ),
        "sequence_length",
        "16",
    ),
    "a smaller vocabulary than the tables'": (
        lambda d: d["model"]["config"].update(vocab_size=50),
        "vocab_size",
        "rows",
    ),
    "a larger vocabulary than the tables'": (
        lambda d: d["model"]["config"].update(vocab_size=100_000),
        "vocab_size",
        "rows",
    ),
    "micro-batches that the plan has not": (
        lambda d: d["methods"][0]["training"].update(accumulation=4),
        "sections",
        "no micro_step",
    ),
    "a journal that the plan does not keep": (lambda d: d["methods"][0].update(replayable=True), "replayable", "false"),
}


@pytest.mark.parametrize("what", METHOD)
def test_a_manifest_that_says_other_numbers_than_the_plan_is_refused(
    what: str,
    side: str,
    tiny_core_bundle: Path,
    tmp_path: Path,
) -> None:
    edit, *said = METHOD[what]
    error = refused(edited(tiny_core_bundle, tmp_path / "b", edit), tmp_path / "state", side, method="mesp")
    assert type(error).__name__ == "PlanError", str(error)
    text = f"{error.subject} {error.got} {error.expected}"
    assert all(part in text for part in said), text


def test_an_adapter_file_shorter_than_the_plan_is_refused(side: str, tiny_core_bundle: Path, tmp_path: Path) -> None:
    with read_bundle(tiny_core_bundle) as bundle:
        file = bundle.manifest.adapter
        piece, array = next(iter(bundle.mapped(file).items()))
        shorter = np.ascontiguousarray(array[:, : array.shape[1] // 2])
    doctored = changed(tiny_core_bundle, tmp_path / "b", arrays={file: {piece: shorter}})
    error = refused(doctored, tmp_path / "state", side)
    assert piece in error.subject or "adapters of other names or shapes" in error.got, str(error)


STORED: dict[str, tuple[str, str]] = {
    "a batch of 64": ("UPDATE runs SET settings = json_set(settings, '$.training.batch_size', 64)", "batch_size"),
    "other lengths": (
        "UPDATE runs SET settings = json_set(settings, '$.training.sequence_lengths', json('[8]'))",
        "sequence_lengths",
    ),
    "settings that are none": ("UPDATE runs SET settings = json_set(settings, '$.training.steps', -3)", "steps"),
    "no settings": ("UPDATE runs SET settings = '{}'", "no training settings"),
    "a seed below 0": ("UPDATE runs SET seed = -1", "-1"),
    "a place beyond every row": (
        "UPDATE slots SET cursor = json_set(cursor, '$.user_position', 9223372036854775807)",
        "user_position",
    ),
    "a place before every row": (
        "UPDATE slots SET cursor = json_set(cursor, '$.general_position', -1)",
        "general_position",
    ),
}
ROWS: dict[str, tuple[str, str]] = {
    "a mask of 7": ("UPDATE example_rows SET mask = with_sevens(mask)", "a mask of 7"),
    "a token below 0": ("UPDATE example_rows SET tokens = beginning_with(-1, tokens)", "token -1"),
    "a token beyond the vocabulary": (
        "UPDATE example_rows SET tokens = beginning_with(16776960, tokens)",
        "token 16776960",
    ),
}


def change(state: Path, statement: str) -> None:
    connection = sqlite3.connect(state / "state.sqlite")
    connection.create_function("with_sevens", 1, lambda mask: mask.replace(b"\1", b"\7"))
    connection.create_function(
        "beginning_with", 2, lambda token, tokens: token.to_bytes(4, "little", signed=True) + tokens[4:]
    )
    with connection:
        assert connection.execute(statement).rowcount
    connection.close()


def begun(bundle: Path, state: Path) -> None:
    """With an unfinished run, which the next call goes on with."""
    with PersonalModel.open(bundle, state, engine="executorch") as model:
        add_numbers(model)
        done: list[int] = []
        report = model.train(
            run_steps=100_000, method="mesp", on_step=lambda step, loss: done.append(step), stop=lambda: bool(done)
        )
    assert report.stopped_because == "stop_requested"


@pytest.mark.parametrize("what", STORED)
def test_a_run_that_says_other_numbers_is_refused(what: str, tiny_core_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    begun(tiny_core_bundle, state)
    statement, said = STORED[what]
    change(state, statement)
    error = refused(tiny_core_bundle, state, "core")
    assert type(error).__name__ == "StateError", str(error)
    assert said in str(error)


@pytest.mark.parametrize("what", ROWS)
def test_rows_that_say_other_numbers_are_refused(what: str, side: str, tiny_core_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    begun(tiny_core_bundle, state)
    statement, said = ROWS[what]
    change(state, statement)
    error = refused(tiny_core_bundle, state, side)
    assert type(error).__name__ == "DataError", str(error)
    assert said in str(error)


@pytest.mark.parametrize("token", [-1, 100_000])
def test_a_bundles_data_with_a_token_that_the_model_lacks_is_refused(
    token: int,
    tiny_core_bundle: Path,
    tmp_path: Path,
) -> None:
    sound = {"tokens": [3, 4, 5], "mask": [0, 1, 1]}
    bundle = with_general(tiny_core_bundle, tmp_path / "b", [sound, {**sound, "tokens": [3, token, 5]}], [sound])
    error = refused(bundle, tmp_path / "state", "core")
    assert type(error).__name__ == "BundleError", str(error)
    assert "data/train.safetensors" in error.subject
