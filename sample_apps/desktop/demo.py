# SPDX-License-Identifier: Apache-2.0
"""The whole workflow on this computer: a chat model learns twenty facts of an invented person within a memory limit.

1. SmolLM2-135M-Instruct is downloaded (93 MB, once; `real_model`), and `Personalizer` builds a bundle from its GGUF file.
2. The facts (`person`) are added in turn, as an app adds what its user writes.
3. MeSP trains on the device core, the phone's own code. The system limits the process to 1.2 times the estimated memory. If
   any other engine trained, the demo fails.
4. The model answers the questions, and three prompts that no example teaches: in another language, arithmetic, and where to
   stop. The demo prints answers before and after, and which of the old answers became less likely.
5. With half of the needed memory, training is refused by our own error and not killed by the system.

If the model cannot be downloaded, a small model is pretrained here and learns to write like an invented user (`small_demo`).

    python sample_apps/desktop/demo.py [--steps N] [--out FOLDER] [--quick] [--small]

With --quick six facts are learned without rehearsal, in a fifth of the time: every part runs, and other answers may suffer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # this file is run as a script

from sample_apps.desktop import small_demo  # noqa: E402
from sample_apps.desktop.person import FACTS, SHOWN_FACT, UNTAUGHT, Fact, knows  # noqa: E402
from sample_apps.desktop.pretrain import DEFAULT_CACHE  # noqa: E402
from sample_apps.desktop.real_model import NotFetched, fetch_model  # noqa: E402
from sample_apps.desktop.showing import (  # noqa: E402
    LIMIT_OVER_ESTIMATE,
    estimated_peak,
    exit_code,
    memory_table,
    refused_in_half,
    say,
    size_of,
)

if TYPE_CHECKING:
    from bespoke import PersonalModel
    from bespoke.rules.report import TrainReport

LEAST_KNOWN = 0.9  # share of the facts that are known in the end; with less the demo fails
WORSE = 0.1  # nats a token by which the loss of an old answer must rise to count as less likely
ANSWER_TOKENS = 40


class Course(NamedTuple):
    """What the model is taught and how."""

    facts: tuple[Fact, ...]
    steps: int
    rehearsal: bool


WHOLE = Course(FACTS, 300, rehearsal=True)
QUICK = Course(FACTS[:6], 60, rehearsal=False)


class Answers(NamedTuple):
    """Answers in the order of the facts and of UNTAUGHT."""

    facts: list[str]
    others: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Teach a chat model twenty facts of an invented person, within a memory limit."
    )
    parser.add_argument(
        "--steps", type=int, help=f"steps of training [{WHOLE.steps}, of the small model {small_demo.STEPS}]"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "demo", help="bundle, state and plot go there")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where the model is kept")
    parser.add_argument("--quick", action="store_true", help="teach six facts, without rehearsal")
    parser.add_argument("--small", action="store_true", help="take the small model, which is pretrained here")
    arguments = parser.parse_args()
    if not arguments.small:
        try:
            with phase("Fetching the model"):
                model = fetch_model(arguments.cache)
        except NotFetched as error:
            say(
                f"SmolLM2-135M-Instruct cannot be fetched ({error}). A small model takes its place, which is pretrained here."
            )
        else:
            course = QUICK if arguments.quick else WHOLE
            return demonstrate(model, arguments.out, course._replace(steps=arguments.steps or course.steps))
    return small_demo.demonstrate(arguments.cache, arguments.out, arguments.steps or small_demo.STEPS)


def demonstrate(file: Path, out: Path, course: Course) -> int:
    from bespoke import BespokeError, Personalizer, PersonalModel, Training
    from bespoke.plot import plot_training

    began = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    bundle, state = out / "chat.bundle", out / "mara"
    personalizer = Personalizer(
        model=file,
        optimizers={"mesp": {"update": "adamw"}},
        targets="executorch",  # the device core
        training=Training(steps=course.steps, sequence_lengths=(64, 128)),
        rehearsal=course.rehearsal,
    )
    with phase(f"1. Building a bundle of {file.name}"):
        _, report = personalizer.build_with_report(bundle)
        say(f"   {size_of(bundle) / 1e6:.1f} MB; {report.quantization}")
    with (
        phase(f"2. Adding {len(course.facts)} facts, asking before training"),
        PersonalModel.open(bundle, state) as model,
    ):
        for number, fact in enumerate(course.facts):
            model.examples.add({"prompt": fact.question, "completion": fact.answer}, id=f"fact-{number}", use="train")
        before = ask(model, course.facts)
        losses = others_lost(model, before)

    estimate = estimated_peak(personalizer)
    limit = int(LIMIT_OVER_ESTIMATE * estimate)
    try:
        with (
            phase(f"3. Training in a process that may take {limit / 1e6:.1f} MB"),
            PersonalModel.open(bundle, state, memory_mb=limit / 1e6) as model,
        ):
            trained = model.train(run_steps=course.steps, on_step=tell_step)
            say(memory_table(trained))
            say(f"   plot: {plot_training(trained, out / 'training.svg')}")
        with phase("4. Asking again"), PersonalModel.open(bundle, state) as model:
            after = ask(model, course.facts)
            known = show_facts(course.facts, before, after)
            show_others(before, after, losses, others_lost(model, before))
    except BespokeError as error:
        say(f"   {type(error).__name__}: {error}")
        return 1

    with phase("5. Training in half of the memory"):
        refused = refused_in_half(bundle, state, out / "mara_refused", trained.peak_bytes, course.steps)
    say(f"{time.monotonic() - began:.0f} seconds without the download.")
    return verdict(trained, known / len(course.facts), refused)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Print the name of a phase, and its seconds at the end."""
    say(f"{name}:")
    began = time.monotonic()
    yield
    say(f"   {time.monotonic() - began:.1f} s")


def ask(model: PersonalModel, facts: tuple[Fact, ...]) -> Answers:
    def answer(question: str) -> str:
        return "".join(model.generate([{"role": "user", "content": question}], max_tokens=ANSWER_TOKENS)).strip()

    return Answers([answer(fact.question) for fact in facts], [answer(prompt) for prompt in UNTAUGHT.values()])


def others_lost(model: PersonalModel, before: Answers) -> list[float]:
    """Losses, in nats a token, of the untrained model's answers to the prompts that no example teaches."""
    losses = []
    for prompt, answer in zip(UNTAUGHT.values(), before.others, strict=True):
        (score,) = model.score([{"role": "user", "content": prompt}], [answer])
        losses.append(-score.log_probability / score.tokens)
    return losses


def show_facts(facts: tuple[Fact, ...], before: Answers, after: Answers) -> int:
    """Print how many facts are known before and after, and one of them; returns the number after."""
    counts = [
        sum(knows(answer, fact) for fact, answer in zip(facts, answers.facts, strict=True))
        for answers in (before, after)
    ]
    say(f"   known: {counts[0]} of {len(facts)} before, {counts[1]} after")
    shown = facts.index(SHOWN_FACT)
    show_try("fact", SHOWN_FACT.question, before.facts[shown], after.facts[shown])
    return counts[1]


def show_others(before: Answers, after: Answers, losses: list[float], later: list[float]) -> None:
    changed = worse = 0
    compared = zip(UNTAUGHT.items(), before.others, after.others, losses, later, strict=True)
    for (what, prompt), old, new, loss, now in compared:
        changed += old != new
        worse += now - loss > WORSE
        show_try(what, prompt, old, new)
        say(f"     the answer of before costs {loss:.2f} -> {now:.2f} nats a token")
    say(
        f"   not taught: {changed} of {len(UNTAUGHT)} prompts are answered otherwise than before training; "
        f"{worse} of the answers of before became less likely."
    )


def show_try(what: str, prompt: str, old: str, new: str) -> None:
    say(f"   {what}: {prompt}\n     before: {shortened(old)}\n     after:  {shortened(new)}")


def shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:87]}..."


def tell_step(step: int, loss: float) -> None:
    if step % 50 == 0:
        say(f"   step {step}: loss {loss:.2f}")


def verdict(report: TrainReport, known: float, refused: str) -> int:
    """0 if everything is as expected; otherwise 1, and prints what is not."""
    return exit_code(
        (f"training ran on {report.runtime}, not on the core; bespoke doctor says why", report.runtime == "core"),
        (f"{known:.0%} of the facts are known, at least {LEAST_KNOWN:.0%} were expected", known >= LEAST_KNOWN),
        ("the new adapter was not accepted", report.accepted),
        (f"half of the memory ended in {refused}, not in BudgetExceeded", refused == "BudgetExceeded"),
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
