# SPDX-License-Identifier: Apache-2.0
"""Wrong values given to Personalizer, its settings and the builder: each is refused by name, with what would be taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bespoke import Budget, Lora, Personalizer, Training
from bespoke.config import Settings
from bespoke.errors import BespokeError, ConfigError, PlanError
from tests.unit.cli.commands import bespoke as command

NAN, INFINITY = float("nan"), float("inf")


def _constant(number: Any) -> Callable[[], object]:
    def make() -> object:
        from bespoke.graph.builder import PlanBuilder

        return PlanBuilder.constant(PlanBuilder.__new__(PlanBuilder), number)

    return make


@pytest.mark.parametrize(
    ("make", "subject", "got", "expected"),
    [
        (lambda: Training(learning_rate=0), "Training.learning_rate", "0", "more than 0"),
        (lambda: Training(learning_rate=NAN), "Training.learning_rate", "nan", ""),
        (lambda: Training(learning_rate=INFINITY), "Training.learning_rate", "inf", "a finite number"),
        (lambda: Training(steps="ten"), "Training.steps", "'ten'", "a whole number"),  # type: ignore[arg-type]
        (lambda: Training(schedule="slow"), "Training.schedule", "'slow'", "'constant', 'linear' or 'cosine'"),  # type: ignore[arg-type]
        (lambda: Training(sequence_lengths=(0,)), "Training.sequence_lengths", "[0]", "each 1 or more"),
        (
            lambda: Training(sequence_lengths=(64, 64)),
            "Training.sequence_lengths",
            "[64, 64]",
            "different whole numbers, each 1 or more",
        ),
        (lambda: Training(sequence_lengths=()), "Training.sequence_lengths", "[]", "at least 1 entries"),
        (lambda: Training(sequence_lengths=64), "Training.sequence_lengths", "64", "a list"),  # type: ignore[arg-type]
        (lambda: Training(step=5), "Training.step", "5", "one of the fields"),  # type: ignore[call-arg]
        (lambda: Budget(memory_mb=-1), "Budget.memory_mb", "-1", "more than 0"),
        (lambda: Budget(memory_mb=INFINITY), "Budget.memory_mb", "inf", "a finite number"),
        (lambda: Lora(rank="8"), "Lora.rank", "'8'", "a whole number"),  # type: ignore[arg-type]
        (lambda: Lora(rank=0), "Lora.rank", "0", "at least 1"),
        (lambda: Personalizer("m", optimizers=3), "optimizers", "3", "a name"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", optimizers=["mesp", 3]), "optimizers", "['mesp', 3]", "a name"),  # type: ignore[list-item]
        (lambda: Personalizer("m", optimizers=["mesp", "mesp"]), "optimizers", "['mesp', 'mesp']", "several different"),
        (lambda: Personalizer("m", {"mesp": 3}), "optimizers", "{'mesp': 3}", "name -> options"),  # type: ignore[dict-item]
        (lambda: Personalizer("m", {"mesp": {"update": 3}}), "optimizers.mesp.update", "3", "'sgd' or 'adamw'"),
        (lambda: Personalizer("m", context="8k"), "context", "'8k'", "a number of tokens or None"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", targets=[]), "targets", "none", "at least one name"),
        (lambda: Personalizer(3), "model", "3", "a folder, a GGUF file or a hub id"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", data=3), "data", "3", "a file, 'auto' or None"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", budget=200), "budget", "200", "Budget(...)"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", training={"steps": 5}), "training", "{'steps': 5}", "Training(...)"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", fields="text"), "fields", "'text'", "column"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", signing_key="key.pem"), "signing_key", "'key.pem'", "bytes"),  # type: ignore[arg-type]
        (lambda: Personalizer("m", train_on=["user"]), "train_on", "['user']", "'assistant', 'user' or 'all'"),  # type: ignore[arg-type]
        (lambda: Personalizer("m").dial([INFINITY]), "Budget.memory_mb", "inf", "a finite number"),
        (_constant(0.9), "Constant 0.9", "0.9", "a whole number"),
        (_constant("3"), "Constant 3", "'3'", "a whole number"),
        (_constant(2**63), "Constant 9223372036854775808", "9223372036854775808", "64 bits"),
    ],
)
def test_a_wrong_value_is_refused_by_name(make: Callable[[], object], subject: str, got: str, expected: str) -> None:
    with pytest.raises(BespokeError) as caught:
        make()
    error = caught.value
    assert isinstance(error, ConfigError | PlanError)
    assert error.subject == subject
    assert got in error.got
    assert expected in error.expected
    assert error.next_step
    assert "Input should be" not in str(error)


@pytest.mark.parametrize(
    ("option", "nearest"),
    [("learning_rte", "learning_rate"), ("updat", "update"), ("warmup_step", "warmup_steps")],
)
def test_an_unknown_option_is_answered_with_the_nearest_of_the_method_and_of_training(
    option: str, nearest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Personalizer("m", {"mesp": {option: 1}})
    assert caught.value.subject == f"optimizers.mesp.{option}"
    assert {"learning_rate", "update"} <= set(caught.value.expected.removeprefix("one of the fields ").split(", "))
    assert caught.value.next_step == f"Did you mean '{nearest}'?"


def test_all_wrong_values_of_one_object_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Training(learning_rate=0, steps=0)
    assert "Training.learning_rate" in str(caught.value)
    assert "Training.steps" in str(caught.value)


def test_a_reader_of_files_still_makes_errors_of_its_own() -> None:
    from pydantic import ValidationError

    class File(Settings):
        training: Training

    with pytest.raises(ValidationError):
        File.model_validate({"training": {"learning_rate": 0.0}})


def test_the_command_line_refuses_an_infinite_budget_and_a_length_of_nothing() -> None:
    wrong = {"--memory-mb": ("--memory-mb", "inf"), "--sequence-lengths": ("--sequence-lengths", "0")}
    for subject, flags in wrong.items():
        answer = command("build", "--model", "m", "--optimizers", "mesp", *flags, "--dry-run", "--format", "json")
        assert (answer.code, answer.json["error"]["subject"]) == (2, subject)


def test_where_an_optimizer_was_asked_for_no_targets_are_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        Personalizer("m", "nosuch")
    assert "mesp" in caught.value.expected
    assert "cuda" not in caught.value.expected
