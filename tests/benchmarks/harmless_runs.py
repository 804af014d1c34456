# SPDX-License-Identifier: Apache-2.0
"""Runs of the benchmark of harmless learning: three persons' facts, learned alone or among the model's own answers.

What a run has measured is kept as a line of harmless/measured/runs.jsonl under its settings. So a benchmark that was stopped goes
on there, also on another machine. Delete the files to measure again where a change makes them outdated. Bundles and states are in
.cache/harmless.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.harmless_measure import BaseAnswer, Measured, base_answers, measure, nats
from tests.benchmarks.harmless_words import Asked, facts, lines
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from bespoke import PersonalModel

KEPT = REPOSITORY / ".cache" / "harmless"
MEASURED = Path(__file__).parent / "harmless" / "measured"
PLAIN, REHEARSED = "plain", "rehearsed"
LENGTHS = (64, 128)


@dataclass(frozen=True)
class Model:
    name: str
    asked: Asked
    prompts: str
    """The file of prompts by which behaviour is measured."""
    rank: int | None = None
    """None: the default."""

    @property
    def built(self) -> str:
        """What names its bundles and its runs."""
        return self.name if self.rank is None else f"{self.name} of rank {self.rank}"


def chat_model(gguf: Path) -> Model:
    """SmolLM2."""
    return Model("SmolLM2-135M-Instruct", Asked(gguf, chats=True), "prompts.txt")


@dataclass(frozen=True)
class Run:
    """What decides the numbers of a run. `learned`: PLAIN trains on the facts alone."""

    model: str
    persona: str
    learned: str
    seed: int
    steps: int
    learning_rate: float
    general_share: float


@dataclass(frozen=True)
class Result:
    """`refused_because` None: accepted. `measured` is of the adapter whether it was accepted or not."""

    run: Run
    measured: Measured
    refused_because: str | None
    behaviour_loss: float | None
    behaviour_loss_base: float | None
    best_step: int | None
    steps: int
    seconds: float


def run_of(model: Model, persona: str, learned: str, seed: int, data_folder: Path) -> Run:
    """The run with the defaults of the bundle."""
    from bespoke import read_bundle
    from bespoke.rules.run_length import run_length

    with read_bundle(bundle(model)) as opened:
        training = opened.method().training
    if learned == PLAIN:
        training = training.model_copy(update={"general_share": 0.0})
    steps = run_length(training, len(facts(data_folder, persona)), general_rows=1)
    return Run(model.built, persona, learned, seed, steps, training.learning_rate, training.general_share)


def result(model: Model, run: Run, data_folder: Path, place: Path) -> Result:
    """What the run gives, from the file if it was made before."""
    for line in kept_lines("runs.jsonl"):
        if line["run"] == asdict(run):
            return Result(**{**line, "run": run, "measured": Measured(**line["measured"])})
    made = _result(model, run, data_folder, place)
    keep("runs.jsonl", asdict(made))
    return made


def _result(model: Model, run: Run, data_folder: Path, place: Path) -> Result:
    from bespoke import PersonalModel

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = time.monotonic()
    measured = None
    with PersonalModel.open(bundle(model), place / "judged") as learner:
        _teach(learner, model, run.persona, data_folder)
        _train_all_but_the_last_step(learner, run)
    shutil.copytree(place / "judged", place / "unjudged")
    with PersonalModel.open(bundle(model), place / "judged") as learner:
        report = learner.train()
        assert report.judged, report
        seconds = time.monotonic() - began
        if report.accepted:
            measured = _measured(learner, model, run.persona, data_folder)
    if measured is None:
        # Nothing can ask a refused adapter. A bundle without data has nothing to refuse it by; its last step reads the user's rows.
        with PersonalModel.open(bundle(model, data=None), place / "unjudged") as learner:
            again = learner.train()
            assert again.accepted, again.why_refused
            measured = _measured(learner, model, run.persona, data_folder)
    shutil.rmtree(place)
    return Result(
        run,
        measured,
        report.refused_because,
        report.behaviour_loss,
        report.behaviour_loss_base,
        report.best_step,
        report.total_steps,
        seconds,
    )


def _teach(learner: PersonalModel, model: Model, persona: str, data_folder: Path) -> None:
    for number, fact in enumerate(facts(data_folder, persona)):
        learner.examples.add(model.asked.example(fact), id=str(number), use="train")


def _train_all_but_the_last_step(learner: PersonalModel, run: Run) -> None:
    done: list[int] = []
    learner.train(
        run_steps=run.steps,
        seed=run.seed,
        general_share=run.general_share,
        learning_rate=run.learning_rate,
        on_step=lambda step, loss: done.append(step),
        stop=lambda: len(done) >= run.steps - 1,
    )


def _measured(learner: PersonalModel, model: Model, persona: str, data_folder: Path) -> Measured:
    return measure(learner, model.asked, facts(data_folder, persona), base(model))


def learned_state(model: Model, persona: str, data_folder: Path) -> Path:
    """A state that has learned a person's facts with the defaults. It is trained once: do not change it."""
    from bespoke import PersonalModel

    state = KEPT / f"{model.built}.{persona}.state"
    with PersonalModel.open(bundle(model), state) as learner:
        if not learner.versions():
            _teach(learner, model, persona, data_folder)
            report = learner.train()
            assert report.accepted, report.why_refused
    return state


def base(model: Model) -> list[BaseAnswer]:
    """What the base model answers, asked once."""
    name = f"{model.name}.answers.jsonl"
    if not (MEASURED / name).is_file():
        from bespoke import PersonalModel

        with PersonalModel.open(bundle(model), KEPT / f"{model.built}.state") as untrained:
            answers = base_answers(untrained, model.asked, lines(model.prompts))
        keep(name, *(asdict(answer) for answer in answers))
    return [BaseAnswer(**line) for line in kept_lines(name)]


def base_measured(model: Model, persona: str, data_folder: Path) -> Measured:
    """What the base model knows of a person."""
    name = f"{model.name}.{persona}.base.jsonl"
    if not (MEASURED / name).is_file():
        from bespoke import PersonalModel

        with PersonalModel.open(bundle(model), KEPT / f"{model.built}.state") as untrained:
            keep(name, asdict(_measured(untrained, model, persona, data_folder)))
    (line,) = kept_lines(name)
    return Measured(**line)


def base_nats(model: Model) -> list[tuple[float, int]]:
    """Nats and tokens of the base's own answers to the base."""
    name = f"{model.name}.nats.jsonl"
    if not (MEASURED / name).is_file():
        from bespoke import PersonalModel

        with PersonalModel.open(bundle(model), KEPT / f"{model.built}.state") as untrained:
            keep(name, *(nats(untrained, one) for one in base(model)))
    return [(float(loss), int(tokens)) for loss, tokens in kept_lines(name)]


def bundle(model: Model, data: str | None = "auto") -> Path:
    """As the README builds one."""
    from bespoke import Lora, Personalizer, Training

    out = KEPT / f"{model.built}.{data or 'no'}.bundle"
    if not out.is_dir():
        KEPT.mkdir(parents=True, exist_ok=True)
        training = Training(sequence_lengths=LENGTHS)
        lora = Lora() if model.rank is None else Lora(rank=model.rank)
        personalizer = Personalizer(
            model.asked.gguf, "mesp", "executorch", lora=lora, context=512, data=data, training=training
        )
        personalizer.build(out)
    return out


def keep(name: str, *values: Any) -> None:
    text = "".join(json.dumps(value) + "\n" for value in values)
    MEASURED.mkdir(exist_ok=True)
    with (MEASURED / name).open("a", encoding="utf-8") as file:
        file.write(text)


def kept_lines(name: str) -> Sequence[Any]:
    file = MEASURED / name
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
