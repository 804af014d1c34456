# SPDX-License-Identifier: Apache-2.0
"""train, evaluate, generate, export: the user's words in, an adapter that answers out."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.support.locked import locked_by_a_trainer
from tests.unit.cli.commands import bespoke
from tests.unit.cli.conftest import Built, Trained
from tests.unit.personal_model.tiny import with_behaviour

pytestmark = pytest.mark.xdist_group("cli")


def test_train_prints_the_report_alone(trained: Trained) -> None:
    report = trained.answer.ok().json
    assert (report["steps"], report["stopped_because"]) == (4, "finished")
    assert report["validation_loss"] < report["validation_loss_before"]
    assert report["judged_on"] == "validation"
    assert report["accepted"] is True
    assert report["peak_bytes"] == report["memory"]["peak_bytes"] >= max(report["step_peak_bytes"]) > 0
    assert len(report["losses"]) == len(report["step_peak_bytes"]) == 4
    assert "12 examples added, 0 were there already" in trained.answer.err


def test_train_draws_memory_against_limits_and_the_losses(trained: Trained) -> None:
    svg = trained.plot.read_text()
    assert all(words in svg for words in ("peak of the step", "estimate", "training", "validation, before and after"))


def test_what_was_added_once_is_not_added_again(built: Built, trained: Trained, examples: Path, tmp_path: Path) -> None:
    shutil.copytree(trained.state, tmp_path / "s")
    answer = bespoke("train", built.bundle, "--state", tmp_path / "s", "--examples", examples, "--run-steps", "1").ok()
    assert "0 examples added, 12 were there already" in answer.err
    assert "stopped because" in answer.out


def test_evaluate_agrees_with_what_the_gate_has_measured(built: Built, trained: Trained, examples: Path) -> None:
    asked = ("evaluate", built.bundle, "--state", trained.state)
    found = bespoke(*asked, "--format", "json").ok().json
    assert found["loss"] == pytest.approx(trained.answer.json["validation_loss"], rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert "nats a token" in bespoke(*asked, "--examples", examples).ok().out


def test_evaluate_shows_both_answers_to_other_questions(built: Built, tmp_path: Path) -> None:
    rows = [
        {"tokens": [1, 300 + index, 301, 302, 303], "mask": [0, 0, 1, 1, 1]} for index in range(6)
    ]  # of words that stories260K knows
    bundle = with_behaviour(built.bundle, tmp_path / "b", rows)
    PersonalModel.open(bundle, tmp_path / "s").close()
    asked = ("evaluate", bundle, "--state", tmp_path / "s", "--behaviour")
    found = bespoke(*asked, "--format", "json").ok().json
    assert found["evaluation"]["loss"] == pytest.approx(found["evaluation"]["base_loss"], rel=1e-6)
    assert found["evaluation"]["tokens"] == 18
    assert len(found["answers"]) == 3
    assert all(pair["prompt"] and pair["base"] and pair["now"] for pair in found["answers"])
    said = bespoke(*asked).ok().out
    assert said.count("question") == said.count("now  ") == 3
    refused = bespoke("evaluate", built.bundle, "--state", tmp_path / "s", "--behaviour")
    assert (refused.code, "behaviour rows" in refused.err) == (5, True)


def test_evaluate_without_examples_says_what_to_do(built: Built, tmp_path: Path) -> None:
    PersonalModel.open(built.bundle, tmp_path / "empty").close()
    answer = bespoke("evaluate", built.bundle, "--state", tmp_path / "empty", "--format", "json")
    assert answer.code == 5
    assert "Add examples" in answer.json["error"]["next_step"]


def test_an_unfinished_run_goes_on_and_new_settings_need_a_new_run(
    built: Built, examples: Path, tmp_path: Path
) -> None:
    train = ("train", built.bundle, "--state", tmp_path / "s", "--format", "json")
    first = (
        bespoke(*train, "--examples", examples, "--run-steps", "3", "--schedule", "linear", "--memory-mb", "100")
        .ok()
        .json
    )
    assert (first["total_steps"], first["memory"]["limit_bytes"]) == (3, 100_000_000)
    answer = _stopped(lambda: bespoke(*train, "--run-steps", "100000"))
    assert answer["stopped_because"] == "stop_requested"
    refused = bespoke(*train, "--learning-rate", "0.1")
    assert (refused.code, refused.json["error"]["kind"]) == (2, "ConfigError")
    assert "--learning-rate" in refused.json["error"]["got"]
    assert refused.json["error"]["next_step"] == "Continue it without them, or run bespoke abandon and train again"
    going_on = bespoke(*train, "--most-steps", "1").ok().json
    assert (going_on["run"], going_on["steps"]) == (answer["run"], 1)
    assert going_on["total_steps"] == answer["total_steps"] + 1
    restarted = bespoke(*train, "--new-run", "--learning-rate", "0.001", "--run-steps", "1").ok().json
    assert restarted["run"] == answer["run"] + 1


def _stopped(train: object) -> dict[str, object]:
    """The report of a training that SIGTERM reaches while it runs."""

    def send() -> None:
        while signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, None):
            time.sleep(0.01)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    answer = train()  # type: ignore[operator]
    sender.join()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # put back
    return answer.ok().json  # a stop that was asked for is no error


def test_the_second_ctrl_c_interrupts() -> None:
    from bespoke.cli.training import _stop_by_signal

    with _stop_by_signal() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_row_that_cannot_be_used_is_named(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(json.dumps({"text": "Fine."}) + "\n" + json.dumps({"text": 3}) + "\n")
    answer = bespoke("train", built.bundle, "--state", tmp_path / "s", "--examples", file, "--format", "json")
    assert answer.code == 5
    assert answer.json["error"]["subject"].startswith(f"{file}, row 2")


def test_fields_name_the_columns_of_a_csv(built: Built, tmp_path: Path) -> None:
    file = tmp_path / "qa.csv"
    file.write_text("question,answer\nWho is it?,It is me.\nWhere to?,To the lake.\n")
    PersonalModel.open(built.bundle, tmp_path / "s").close()
    fields = ("--field", "prompt=question", "--field", "completion=answer")
    found = (
        bespoke("evaluate", built.bundle, "--state", tmp_path / "s", "--examples", file, *fields, "--format", "json")
        .ok()
        .json
    )
    assert found["examples"] == 2
    wrong = bespoke("evaluate", built.bundle, "--state", tmp_path / "s", "--examples", file, "--field", "prompt")
    assert (wrong.code, "--field" in wrong.err) == (2, True)


def test_a_limit_that_is_too_small_refuses_before_training(built: Built, examples: Path, tmp_path: Path) -> None:
    asked = ("--examples", examples, "--memory-mb", "0.1", "--format", "json")
    answer = bespoke("train", built.bundle, "--state", tmp_path / "s", *asked)
    assert (answer.code, answer.json["error"]["kind"]) == (10, "BudgetExceeded")
    assert "0.1 MB" in answer.json["error"]["expected"]


def test_a_state_that_another_trainer_holds_is_refused(built: Built, examples: Path, tmp_path: Path) -> None:
    PersonalModel.open(built.bundle, tmp_path / "s").close()
    with locked_by_a_trainer(tmp_path / "s"):
        answer = bespoke("train", built.bundle, "--state", tmp_path / "s", "--examples", examples, "--format", "json")
    assert (answer.code, answer.json["error"]["kind"]) == (9, "StateLocked")
    assert str(os.getpid()) in answer.json["error"]["got"]


def test_an_unknown_method_and_an_unwritable_plot_are_refused_before_training(built: Built, tmp_path: Path) -> None:
    answer = bespoke("train", built.bundle, "--state", tmp_path / "s", "--method", "nosuch")
    assert (answer.code, "mesp" in answer.err) == (2, True)
    assert bespoke("train", built.bundle, "--state", tmp_path / "s", "--plot", "x.gif").code == 2


def test_generate_is_decided_by_its_seed(built: Built, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ("generate", built.bundle, "--state", trained.state, "--max-tokens", "8")
    drawn = [bespoke(*ask, "Once upon a time", "--temperature", "2", "--seed", seed).ok().out for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    greedy = bespoke(*ask, "Once upon a time").ok().out
    monkeypatch.setattr("sys.stdin", io.StringIO("Once upon a time"))
    assert bespoke(*ask, "-").ok().out == greedy != "\n"


def test_generate_refuses_a_prompt_longer_than_the_context(built: Built, trained: Trained) -> None:
    answer = bespoke("generate", built.bundle, "--state", trained.state, "word " * 200)
    assert (answer.code, "Shorten the prompt" in answer.err) == (13, True)


def test_export_writes_a_peft_folder(built: Built, trained: Trained, tmp_path: Path) -> None:
    answer = bespoke("export", built.bundle, tmp_path / "adapter", "--state", trained.state).ok()
    assert answer.out.strip() == str(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"]) == ("LORA", 4)
    from safetensors import safe_open

    with safe_open(tmp_path / "adapter" / "adapter_model.safetensors", "numpy") as file:
        trained_b = [name for name in file.keys() if "lora_B" in name and file.get_tensor(name).any()]  # noqa: SIM118
    assert len(trained_b) == 5 * 7  # every linear of every block has left zero
