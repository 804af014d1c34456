# SPDX-License-Identifier: Apache-2.0
"""The demo without a download: a small model, pretrained here, learns to write like Nell within a memory limit.

1. A Llama of a million parameters is pretrained on generated everyday text (`pretrain`; cached).
2. `Personalizer` builds a bundle for it.
3. Nell's notes (`notes`) are added in turn, as an app adds what its user writes.
4. MeSP trains on the device core, the phone's own code. The system limits the process to 1.2 times the estimated memory and a
   small margin. If any other engine trained, the demo fails.
5. The held-out notes measure the gain. They share no run of eight words or tokens with the notes for training.
6. With half of the needed memory, training is refused by our own error and not killed by the system.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_apps.desktop.notes import PROMPTS, example, note_id, notes, shared_runs
from sample_apps.desktop.pretrain import BEGIN, END, ensure_model
from sample_apps.desktop.showing import (
    LIMIT_OVER_ESTIMATE,
    estimated_peak,
    exit_code,
    memory_table,
    refused_in_half,
    say,
    size_of,
)

if TYPE_CHECKING:
    from bespoke.rules.report import TrainReport

NOTES = 200
STEPS = 200
LEAST_FALL = 0.20  # relative fall of the validation loss; with less the demo fails
COMPLETION_TOKENS = 40


def demonstrate(cache: Path, out: Path, steps: int) -> int:
    folder = ensure_model(cache)
    began = time.monotonic()
    say(f"1. Model: {folder}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    bundle, state = out / "everyday.bundle", out / "nell"

    from bespoke import BespokeError, Lora, Personalizer, PersonalModel, Training
    from bespoke.plot import plot_training

    personalizer = Personalizer(
        model=folder,
        optimizers={"mesp": {"update": "adamw"}},
        targets="executorch",  # the device core
        lora=Lora(rank=8, alpha=16),
        training=Training(
            learning_rate=5e-3, steps=steps, sequence_lengths=(64,), batch_size=4, schedule="cosine", warmup_steps=10
        ),
    )
    estimate = estimated_peak(personalizer)
    personalizer.build(bundle)
    say(f"2. Bundle: {bundle}, {size_of(bundle) / 1e6:.1f} MB. Training should take {estimate / 1e6:.1f} MB.")

    with PersonalModel.open(bundle, state) as model:
        words = add_notes(model, folder)
        say(
            f"3. Notes: {len(words['train'])} to learn from, {len(words['validation'])} held out; no shared run of eight."
        )
        before = [complete(model, prompt) for prompt in PROMPTS]

    limit = int(LIMIT_OVER_ESTIMATE * estimate)
    say(f"4. Training in a process that may take {limit / 1e6:.1f} MB:")
    try:
        with PersonalModel.open(bundle, state, memory_mb=limit / 1e6) as model:
            report = model.train(run_steps=steps, on_step=tell_step)
            after = [complete(model, prompt) for prompt in PROMPTS]
    except BespokeError as error:
        say(f"   {type(error).__name__}: {error}")
        return 1
    show(report, before, after)
    say(f"   plot: {plot_training(report, out / 'training.svg')}")

    say("6. In half of the memory:")
    refused = refused_in_half(bundle, state, out / "nell_refused", report.peak_bytes, steps)
    say(f"{time.monotonic() - began:.0f} seconds after pretraining.")
    return verdict(report, refused)


def verdict(report: TrainReport, refused: str) -> int:
    """0 if everything is as expected; otherwise 1, and prints what is not."""
    fall = _fall(report)
    return exit_code(
        (f"training ran on {report.runtime}, not on the core; bespoke doctor says why", report.runtime == "core"),
        (f"the loss fell by {fall:.0%}, at least {LEAST_FALL:.0%} was expected", fall >= LEAST_FALL),
        ("the new adapter was not accepted", report.accepted),
        (f"half of the memory ended in {refused}, not in BudgetExceeded", refused == "BudgetExceeded"),
    )


def _fall(report: TrainReport) -> float:
    if report.validation_loss is None or report.validation_loss_before is None:
        return 0.0
    return 1 - report.validation_loss / report.validation_loss_before


def tell_step(step: int, loss: float) -> None:
    if step % 20 == 0:
        say(f"   step {step}: loss {loss:.2f}")


def add_notes(model: Any, folder: Path) -> dict[str, list[str]]:
    """Add the notes in turn; returns them by split. Fails if a run of eight appears in both splits."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        return tokenizer.encode(f"{BEGIN}{text}{END}", add_special_tokens=False).ids

    splits: dict[str, list[str]] = {"train": [], "validation": []}
    for index, note in enumerate(notes(encode, NOTES)):
        added = model.examples.add(example(note), id=note_id(index))
        splits[added.split].append(note)

    leaked = shared_runs(splits["train"], splits["validation"], encode)
    if leaked:
        raise SystemExit(f"validation shares runs of eight with training: {sorted(map(str, leaked))[:3]}")
    return splits


def complete(model: Any, prompt: str) -> str:
    """The prompt and the model's continuation, up to its end or the last full stop."""
    text = prompt + "".join(model.generate(prompt, max_tokens=COMPLETION_TOKENS))
    return text[: text.rfind(".") + 1] or text


def show(report: TrainReport, before: list[str], after: list[str]) -> None:
    memory = report.memory
    say(
        f"   runtime: {report.runtime}; {report.steps} steps, {report.seconds / report.steps:.3f} s each; "
        f"limit enforced by {memory.enforced_by}"
        f"\n5. Validation loss {report.validation_loss_before:.2f} -> {report.validation_loss:.2f} nats a token"
        f" ({_fall(report):.0%} less); {'accepted' if report.accepted else 'NOT accepted'}; {report.stopped_because}"
    )
    say(memory_table(report))
    for old, new in zip(before, after, strict=True):
        say(f"   before: {old}\n   after:  {new}")
