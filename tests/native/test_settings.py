# SPDX-License-Identifier: Apache-2.0
"""Settings that cannot be, in both runtimes: one kind of error and one wording, before an example is added or a run begun."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.manifest import Manifest
from bespoke.core import finding
from bespoke.core.child import run
from bespoke.errors import ConfigError
from tests.native.core_lab import tiny_core_bundle
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import add_numbers, changed, numbers

__all__ = ["tiny_core_bundle"]

HUGE = 99999999999999999999
NUMBERS: list[tuple[dict[str, Any], str, str]] = [
    ({"learning_rate": float("inf")}, "train.learning_rate", "a finite number"),
    ({"learning_rate": float("nan")}, "train.learning_rate", "a finite number"),
    ({"learning_rate": 0.0}, "train.learning_rate", "more than 0"),
    ({"learning_rate": -1.0}, "train.learning_rate", "more than 0"),
    ({"warmup_steps": -1}, "train.warmup_steps", "at least 0"),
    ({"general_share": 1.5}, "train.general_share", "at most 1"),
    ({"commit_seconds": 0.0}, "train.commit_seconds", "more than 0"),
    ({"write_mb_per_second": float("inf")}, "train.write_mb_per_second", "a finite number"),
    ({"seed": -1}, "train.seed", "at least 0"),
    ({"seed": 2**63}, "train.seed", "less than 9223372036854775808"),
    ({"seed": HUGE}, "train.seed", "less than 9223372036854775808"),
]
COUNTS: list[tuple[dict[str, Any], str, str]] = [
    ({name: count}, f"train.{name}", "a whole number from 1 to 10000000")
    for name in ("run_steps", "most_steps")
    for count in (0, -1, 10_000_001, HUGE)
]


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))


def rows(state: Path, table: str) -> int:
    with sqlite3.connect(f"file:{state / 'state.sqlite'}?mode=ro", uri=True) as connection:
        count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return count


@pytest.mark.parametrize("begun", [False, True], ids=["new run", "unfinished run"])
@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_numbers_that_cannot_be_are_refused_in_one_way_on_every_engine(
    tiny_core_bundle: Path, tmp_path: Path, engine: str, begun: bool
) -> None:
    with PersonalModel.open(tiny_core_bundle, tmp_path / "state", engine=engine) as model:
        add_numbers(model, 3)
        if begun:
            model.train(stop=lambda: True)
        for settings, subject, expected in NUMBERS + COUNTS:
            with pytest.raises(ConfigError) as refused:
                model.train(**settings)
            assert (refused.value.subject, refused.value.expected) == (subject, expected), settings
        with pytest.raises(ConfigError) as both:
            model.train(learning_rate=float("inf"), seed=-1)
        assert "train.learning_rate" in both.value.subject
        assert "train.seed" in both.value.subject
    assert rows(tmp_path / "state", "runs") == begun


@pytest.mark.parametrize(("settings", "subject", "expected"), NUMBERS)
def test_the_core_refuses_them_itself(
    tiny_core_bundle: Path, tmp_path: Path, settings: dict[str, Any], subject: str, expected: str
) -> None:
    """As an app that calls the core meets them: no Python checks before. JSON has no word for what is not finite."""
    with PersonalModel.open(tiny_core_bundle, tmp_path / "state") as model:
        add_numbers(model, 3)
    request = {"verb": "train", "bundle": str(tiny_core_bundle), "state": str(tmp_path / "state")}
    with pytest.raises(ConfigError) as refused:
        run({**request, "run_steps": 1, "settings": settings})
    finite = expected != "a finite number"
    assert (
        (refused.value.subject, refused.value.expected) == (subject, expected)
        if finite
        else "JSON" in refused.value.got
    )
    if settings.get("seed", 0) > 0:  # the call's own
        with pytest.raises(ConfigError, match="64 bits"):
            run({**request, **settings})
    assert rows(tmp_path / "state", "runs") == 0


@pytest.mark.parametrize(
    "flags",
    [
        ("--learning-rate", "nan"),
        ("--learning-rate", "inf"),
        ("--learning-rate", "0"),
        ("--seed", HUGE),
        ("--seed", "-1"),
        ("--run-steps", "0"),
        ("--run-steps", HUGE),
        ("--most-steps", "0"),
        ("--method", "adam"),
        ("--warmup-steps", "-3"),
        ("--commit-seconds", "0"),
        ("--accumulation", "4"),
    ],
    ids=lambda flags: " ".join(map(str, flags)),
)
def test_the_command_line_checks_settings_before_it_adds_examples(
    tiny_core_bundle: Path, tmp_path: Path, flags: Any
) -> None:
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(numbers(index)) + "\n" for index in range(3)))
    command = ("train", tiny_core_bundle, "--examples", tmp_path / "some.jsonl", *flags)
    answers = {
        engine: bespoke(*command, "--state", tmp_path / engine, "--engine", engine)
        for engine in ("torch", "executorch")
    }
    assert answers["torch"] == answers["executorch"]
    assert answers["executorch"].code == 2
    assert flags[0].strip("-").replace("-", "_") in answers["executorch"].err or flags[0] in answers["executorch"].err
    for engine in answers:
        assert rows(tmp_path / engine, "examples") == 0


def test_another_setting_for_an_unfinished_run_is_refused_before_examples_are_added(
    tiny_core_bundle: Path, tmp_path: Path
) -> None:
    with PersonalModel.open(tiny_core_bundle, tmp_path / "state") as model:
        add_numbers(model, 3)
        model.train(stop=lambda: True)
    (tmp_path / "more.jsonl").write_text(json.dumps(numbers(5)) + "\n")
    command = (
        "train",
        tiny_core_bundle,
        "--state",
        tmp_path / "state",
        "--examples",
        tmp_path / "more.jsonl",
        "--run-steps",
        1,
    )
    refused = bespoke(*command, "--learning-rate", "0.5")
    assert refused.code == 2
    assert "unfinished run" in refused.err
    assert rows(tmp_path / "state", "examples") == 3
    bespoke(*command, "--learning-rate", "0.5", "--new-run").ok()
    assert rows(tmp_path / "state", "examples") == 4


def test_a_bundle_with_other_options_does_not_go_on_with_a_run(tmp_path: Path) -> None:
    """With dual-forwarding the state holds the run's start and what leads on from it: without, the run would lose its steps."""
    model_folder = tiny_model("llama", tmp_path / "model", num_hidden_layers=2, hidden_size=32, intermediate_size=32)
    bundles = {}
    for dual in (True, False):
        methods = {"prge": {"queries": 2, "dual_forwarding": dual}}
        settings: dict[str, Any] = {
            "lora": Lora(rank=2),
            "training": Training(sequence_lengths=(16,), steps=4),
            "context": 32,
        }
        bundles[dual] = tmp_path / f"{dual}.bundle"
        Personalizer(model_folder, methods, "torch", data=None, **settings).build(bundles[dual])
    done: list[int] = []
    with PersonalModel.open(bundles[True], tmp_path / "state") as model:
        add_numbers(model, 3)
        model.train(on_step=lambda step, loss: done.append(step), stop=lambda: len(done) >= 2)
    with PersonalModel.open(bundles[False], tmp_path / "state") as model:
        with pytest.raises(ConfigError, match="which the unfinished run was started with") as refused:
            model.train()
        assert "abandon_run" in str(refused.value)
    with PersonalModel.open(bundles[True], tmp_path / "state") as model:  # it is still there
        report = model.train(most_steps=1)
        assert report.total_steps == len(done) + 1
    with PersonalModel.open(bundles[False], tmp_path / "state") as model:
        model.abandon_run()
        assert model.train(run_steps=1).total_steps == 1


@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_a_run_without_a_number_of_steps_is_as_long_as_its_examples_ask_for(
    tiny_core_bundle: Path, tmp_path: Path, engine: str
) -> None:
    def without(manifest: Manifest) -> Manifest:
        first, *others = manifest.methods  # two rows a step
        training = first.training.model_copy(update={"steps": None})
        return manifest.model_copy(update={"methods": (first.model_copy(update={"training": training}), *others)})

    bundle = changed(tiny_core_bundle, tmp_path / "bundle", without)
    with PersonalModel.open(bundle, tmp_path / "state", engine=engine) as model:
        for count, steps in ((10, 300), (130, 6 * 130 // 2)):
            for index in range(count):
                model.examples.add(numbers(index), id=f"number-{index}", use="train")
            model.abandon_run()
            model.train(stop=lambda: True)
            run = model.current_run()
            assert run is not None
            assert run.steps == steps
        assert model.train(most_steps=1).total_steps == 1  # the same run goes on, also with new examples
        run = model.current_run()
        assert run is not None
        assert (run.step, run.steps) == (1, 390)
        model.abandon_run()
        assert model.train(run_steps=2).stopped_because == "finished"
