# SPDX-License-Identifier: Apache-2.0
"""PersonalModel on the core: the runs of the reference, the errors of PersonalModel on torch; and a core that is killed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bespoke import BespokeError, PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.core import child, finding, limit
from bespoke.errors import BudgetExceeded, ConfigError, DataError, MissingDependency, StateLocked
from bespoke.reference.evaluate import evaluate
from tests.native.core_lab import METHODS, STEPS, tiny_core_bundle
from tests.support.checks import few_of
from tests.support.locked import locked_by_a_trainer
from tests.support.oracle import expected_of
from tests.support.reading import accepted, rows_of_split
from tests.unit.cli.commands import bespoke
from tests.unit.personal_model.tiny import add_numbers, numbers, with_general

__all__ = ["tiny_core_bundle"]

Open = Callable[..., PersonalModel]


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def opened(tiny_core_bundle: Path, tmp_path: Path) -> Iterator[Open]:
    """`opened("alice", engine="executorch")`: a state with 12 examples; the same name opens the same state again."""
    with ExitStack() as stack:

        def open_state(name: str = "alice", count: int = 12, **options: Any) -> PersonalModel:
            model = PersonalModel.open(tiny_core_bundle, tmp_path / name, **options)
            stack.callback(model.close)
            add_numbers(model, count)
            return model

        yield open_state


def begun(model: PersonalModel) -> PersonalModel:
    """With an unfinished run of STEPS steps, of which hardly any was made: a `train` with another number would be a run of that."""
    assert model.train(stop=lambda: True).stopped_because == "stop_requested"
    return model


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp", "mezo", "prge")))
def test_the_core_reports_what_the_reference_computes(
    opened: Open, tiny_core_bundle: Path, tmp_path: Path, method: str
) -> None:
    steps: list[tuple[int, float]] = []
    report = opened().train(method=method, on_step=lambda step, loss: steps.append((step, loss)))
    expected = expected_of(tiny_core_bundle, tmp_path / "alice")
    assert report.losses == pytest.approx(expected.trained.losses, abs=1e-5)
    assert steps == list(enumerate(report.losses, 1))
    assert (report.runtime, report.method, report.run, report.stopped_because) == ("core", method, 1, "finished")
    assert report.steps == report.total_steps == STEPS == expected.trained.state.cursor.step
    assert (report.tokens, report.rejected_steps) == (expected.trained.tokens, len(expected.trained.rejected))
    assert (report.judged_on, report.judged_tokens) == (expected.judged_on, expected.judged_tokens)
    assert report.validation_loss_before == pytest.approx(expected.loss_before, abs=1e-4)
    assert report.validation_loss == pytest.approx(expected.loss, abs=1e-4)
    assert report.least_gain == pytest.approx(expected.least_gain, rel=0.005, abs=1e-5)
    assert report.accepted == (expected.loss_before - expected.loss > expected.least_gain)
    assert report.general_loss is expected.general_loss is None


@pytest.mark.slow
def test_it_judges_by_a_general_set_and_never_trains_on_it(tiny_core_bundle: Path, tmp_path: Path) -> None:
    """Also where all batches are to be general ones. It asks for an example where there is none."""
    general = [
        {"tokens": [45 - (number + place) % 6 for place in range(9)], "mask": [0] + [1] * 8} for number in range(6)
    ]
    bundle = with_general(tiny_core_bundle, tmp_path / "bundle", [], general)
    with PersonalModel.open(bundle, tmp_path / "state", engine="executorch") as model:
        with pytest.raises(DataError, match="no example of the user to train on, and no general text"):
            model.train(run_steps=1)
        add_numbers(model, 12)
        report = model.train(general_share=1.0, general_tolerance=0.0)
    expected = expected_of(bundle, tmp_path / "state")
    assert expected.trained.state.cursor.general_position == 0
    assert report.losses == pytest.approx(expected.trained.losses, abs=1e-5)
    assert report.tokens == expected.trained.tokens
    assert report.general_loss_before == pytest.approx(expected.general_loss_before, abs=1e-4)
    assert report.general_loss == pytest.approx(expected.general_loss, abs=1e-4)
    better = report.gain > report.least_gain
    assert report.accepted == (better and report.general_loss <= report.general_loss_before)


@pytest.mark.slow
def test_of_a_long_text_the_rows_are_judged_that_the_rule_names(
    opened: Open, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    """The tokens change along the text, so other rows would have another loss."""
    tokens = [3 + (place * place // 700 + place % 7) % 120 for place in range(40_001)]
    model = opened("book", 0)
    model.examples.add({"tokens": tokens}, id="book")
    report = model.train(run_steps=1)
    expected = expected_of(tiny_core_bundle, tmp_path / "book")
    # One step on 40,000 tokens: reading all of them twice would take 5,000 rows of 16.
    assert (report.judged_tokens, report.judged_of_tokens) == (4096, 40_000)
    assert expected.judged_tokens == 4096
    assert report.validation_loss_before == pytest.approx(expected.loss_before, abs=1e-5)
    assert report.validation_loss == pytest.approx(expected.loss, abs=1e-5)


def test_the_report_has_memory_columns_seconds_and_stages(opened: Open) -> None:
    report = opened(memory_mb=100).train()
    memory = report.memory
    assert memory.idle_bytes == 0  # all of the process counts
    assert 1_000_000 < report.peak_bytes == memory.peak_bytes < memory.limit_bytes == 100_000_000
    assert memory.enforced_by in ("cgroup2", "cgroup1", "rlimit_data")
    assert memory.file_bytes > 0
    columns = report.memory_columns
    assert set(columns) == {"anonymous", "shmem", "swap", "file"}
    assert {len(column) for column in columns.values()} == {STEPS} == {len(report.step_seconds)}
    peaks = tuple(sum(parts) for parts in zip(columns["anonymous"], columns["shmem"], columns["swap"], strict=True))
    assert report.step_peak_bytes == peaks
    assert max(peaks) <= report.peak_bytes
    assert list(report.seconds_by_stage) == ["forward", "head", "backward", "update"]
    assert 0 < sum(report.seconds_by_stage.values()) <= sum(report.step_seconds) <= report.seconds
    assert report.bytes_written >= 0
    json.dumps(report.as_dict())


@pytest.mark.parametrize("first", few_of(("executorch", "torch"), ("executorch",)))
def test_a_run_begun_on_one_engine_goes_on_on_the_other(opened: Open, first: str) -> None:
    whole = opened("whole").train()
    model = opened("mixed", engine=first)
    before = model.train(stop=lambda: True)
    part = model.train(most_steps=5)
    model.close()
    rest = opened("mixed", engine="torch" if first == "executorch" else "executorch").train()
    assert (rest.run, rest.total_steps, rest.stopped_because) == (part.run, STEPS, "finished")
    assert (part.steps, part.stopped_because) == (5, "steps_done")
    assert before.losses + part.losses + rest.losses == pytest.approx(whole.losses, abs=1e-5)


def test_a_stopped_run_goes_on_where_it_stopped(opened: Open) -> None:
    whole = opened("whole").train()
    answers = itertools.chain([False] * 4, itertools.repeat(True))
    model = opened("stopped")
    part = model.train(stop=lambda: next(answers))
    rest = model.train()
    if part.stopped_because == "stop_requested":  # else it was faster than the question
        assert part.steps < STEPS
    assert part.losses + rest.losses[: STEPS - part.steps] == pytest.approx(whole.losses, abs=1e-6)


@pytest.mark.parametrize("engine", few_of(("executorch", "torch"), ("executorch",)))
def test_a_run_that_was_stopped_is_not_judged_yet(opened: Open, engine: str) -> None:
    model = opened(engine=engine)
    report = model.train(stop=lambda: True)
    assert (report.accepted, report.judged) == (None, False)
    assert "\naccepted         not judged yet" in str(report)
    report = model.train()
    assert (report.accepted, report.judged) == (True, True)
    assert "\naccepted         yes" in str(report)


def test_what_the_core_learned_answers_and_is_evaluated_alike(
    opened: Open, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    model = opened("learned")
    report = model.train()
    assert report.accepted
    on_core = model.evaluate()
    assert (on_core.runtime, on_core.loss) == ("core", pytest.approx(report.validation_loss, rel=1e-6))
    assert len(model.versions()) == 1
    assert len(list(model.generate_ids([40, 41, 42], max_tokens=4))) == 4
    state = tmp_path / "learned"
    with read_bundle(tiny_core_bundle) as bundle:
        expected = evaluate(bundle, rows_of_split(state, "validation"), accepted(state))
    assert expected is not None
    assert on_core.loss == pytest.approx(expected.loss, abs=1e-5)
    assert (on_core.tokens, on_core.examples, on_core.accuracy) == (
        expected.tokens,
        expected.examples,
        expected.accuracy,
    )


def test_an_example_that_is_forgotten_meanwhile_ends_the_run(opened: Open) -> None:
    model = opened()
    id = next(one.id for one in model.examples.list() if one.split == "train")

    def forget(step: int, loss: float) -> None:
        if step == 1:
            model.examples.forget(id)

    report = model.train(run_steps=STEPS, on_step=forget)
    assert report.stopped_because in ("example_forgotten", "finished")  # finished: it was faster than the forgetting
    assert not model.versions()


def test_the_limit_may_change_while_the_core_trains(opened: Open) -> None:
    model = opened(memory_mb=100)
    with pytest.raises(BudgetExceeded):
        model.train(run_steps=100_000, on_step=lambda step, loss: model.set_limit(1.0))
    model.set_limit(None)
    assert model.train(most_steps=3).steps == 3


def test_a_pace_slows_the_core_down(opened: Open) -> None:
    model = opened()
    model.set_pace(0.1)
    report = model.train(run_steps=40)
    assert report.seconds > 5 * sum(report.seconds_by_stage.values())  # nine times what it computed for, it rested
    with pytest.raises(ConfigError, match="share"):
        model.set_pace(0)


# ---- which engine ------------------------------------------------------------------------------------------------------------


def test_the_core_is_chosen_where_it_is_there(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened().engine == "executorch"
    assert opened(engine="torch").engine == "torch"
    with pytest.raises(ConfigError, match="'gpu'"):
        opened(engine="gpu")
    monkeypatch.setenv(finding.OVERRIDE, "/nonexistent")
    for engine in ("executorch", "torch"):
        with pytest.raises(MissingDependency, match="no file"):
            opened(engine=engine)


def test_training_on_the_core_imports_no_torch(opened: Open, tiny_core_bundle: Path, tmp_path: Path) -> None:
    opened().close()
    program = f"""
import sys
from bespoke import PersonalModel
with PersonalModel.open({str(tiny_core_bundle)!r}, {str(tmp_path / "alice")!r}) as model:
    report = model.train(run_steps=2)
    model.evaluate()
assert report.runtime == "core" and report.steps == 2
print(*sorted({{"torch", "transformers", "executorch"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# ---- what is refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 7},
        {"accumulation": 3},
        {"method": "nosuch"},
        {"run_steps": 0},
        {"most_steps": -1},
        {"steps": 5},
        {"learning_rate": -1.0},
        {"schedule": "steep"},
        {"nosuch": 1},
        {"learning_rate": "fast"},
        {"seed": -1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_refused_is_refused_by_both_in_the_same_words(opened: Open, wrong: dict[str, Any]) -> None:
    errors = []
    for engine in ("executorch", "torch"):
        with pytest.raises(BespokeError) as raised:
            opened(engine, engine=engine).train(**wrong)
        errors.append(raised.value)
    assert type(errors[0]) is type(errors[1]) is ConfigError
    assert errors[0].subject.split()[0] == errors[1].subject.split()[0]


def test_other_settings_for_an_unfinished_run_are_refused(opened: Open) -> None:
    model = begun(opened())
    for other in ({"learning_rate": 0.5}, {"seed": 9}):
        with pytest.raises(ConfigError, match="settings it was started with"):
            model.train(**other)
    assert model.abandon_run()
    assert model.train(run_steps=1, learning_rate=0.5).run == 2


def test_a_budget_that_is_too_small_is_refused_before_the_first_step(opened: Open) -> None:
    steps: list[int] = []
    with pytest.raises(BudgetExceeded, match="estimated peak") as raised:
        opened(memory_mb=1.5).train(on_step=lambda step, loss: steps.append(step))
    assert "1.5 MB" in raised.value.expected
    assert steps == []
    with pytest.raises(ConfigError, match="memory_mb"):
        opened(memory_mb=0)


def test_a_core_that_the_system_ends_is_a_budget_error_and_loses_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core is given no limit, so that it meets that of the system."""
    model = opened()
    request = {**model._engine._request, "verb": "train", "memory_mb": -1.0}
    monkeypatch.setattr(limit, "MARGIN_BYTES", 0)
    with pytest.raises(BespokeError) as raised:
        child.run(request, 1_500_000)
    if not isinstance(raised.value, BudgetExceeded):
        pytest.skip(f"no cgroup ended it here: {raised.value}")
    assert model.train().stopped_because == "finished"


def test_a_state_without_examples_says_what_to_do(opened: Open) -> None:
    model = opened("empty", 0)
    with pytest.raises(DataError, match="Add an example"):
        model.train()
    with pytest.raises(DataError, match="Add examples"):
        model.evaluate()


def test_a_state_that_another_trainer_holds_is_refused(opened: Open, tmp_path: Path) -> None:
    model = opened()
    with locked_by_a_trainer(tmp_path / "alice"), pytest.raises(StateLocked):
        model.train()


def test_a_bundle_that_was_changed_since_it_was_opened_is_refused(
    opened: Open, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    model = opened()
    model._engine._request["pin_sha256"] = "0" * 64
    with pytest.raises(BespokeError, match="pinned"):
        model.train()


# ---- the command line --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_line_says_what_ran(opened: Open, tiny_core_bundle: Path, tmp_path: Path) -> None:
    opened().close()
    asked = (tiny_core_bundle, "--state", tmp_path / "alice")
    text = bespoke("train", *asked, "--run-steps", "3", "--memory-mb", "80", "--plot", tmp_path / "p.svg").ok().out
    assert "runtime core" in text
    assert "limit 80.0 MB (enforced by" in text
    assert "forward" in text
    assert "on core" in (tmp_path / "p.svg").read_text()
    assert bespoke("evaluate", *asked, "--format", "json").ok().json["runtime"] == "core"
    report = bespoke("train", *asked, "--engine", "torch", "--format", "json").ok().json
    assert (report["runtime"], report["steps"]) == ("torch", STEPS)
    (tmp_path / "x.jsonl").write_text(json.dumps(numbers(50)) + "\n")
    given = (
        bespoke("evaluate", *asked, "--engine", "executorch", "--examples", tmp_path / "x.jsonl", "--format", "json")
        .ok()
        .json
    )
    assert (given["runtime"], given["examples"]) == ("core", 1)


def test_verify_compares_both_engines_with_the_golden_vectors(tiny_core_bundle: Path) -> None:
    both = bespoke("verify", tiny_core_bundle, "--format", "json").ok().json["golden"]
    core = bespoke("verify", tiny_core_bundle, "--engine", "executorch", "--format", "json").ok().json["golden"]
    assert {check["runtime"] for check in both} == {"torch", "core"}
    assert {check["runtime"] for check in core} == {"core"}
    known = [(c["what"], c["method"], c["sequence_length"], c["compared"]) for c in both if c["runtime"] == "torch"]
    of_core = [(c["what"], c["method"], c["sequence_length"], c["compared"]) for c in core]
    rounded = [check for check in of_core if "rounded" in check[0]]  # only kernels of the core round a prompt
    assert [what for what, *_ in rounded] == ["next-token loss of a rounded prefill and decode"]
    assert [check for check in of_core if check not in rounded] == known


def test_without_torch_the_core_proves_itself_alone(tiny_core_bundle: Path) -> None:
    program = f"""
import sys
sys.modules["torch"] = None
from bespoke.cli import run
sys.exit(run(["verify", {str(tiny_core_bundle)!r}, "--format", "json"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {check["runtime"] for check in json.loads(done.stdout)["golden"]} == {"core"}
    help_text = " ".join(bespoke("verify", "--help").ok().out.split())
    assert "Golden vectors need torch or the device core. Without torch, only the core is checked." in help_text


def test_without_the_core_the_command_line_says_what_to_run(
    opened: Open, tiny_core_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened().close()
    monkeypatch.setenv(finding.OVERRIDE, "/nonexistent")
    answer = bespoke("train", tiny_core_bundle, "--state", tmp_path / "alice", "--run-steps", "1")
    assert (answer.code, "Name a built bespoke-core" in answer.err) == (3, True)
    for verb in (("inspect", tiny_core_bundle), ("plugins",)):
        bespoke(*verb).ok()
