# SPDX-License-Identifier: Apache-2.0
"""The whole way on this computer, nothing downloaded: a small model learns to write like Nell within a memory limit.

1. a Llama of a million parameters is pretrained on generated everyday text (`pretrain`; cached);
2. `Personalizer` builds a bundle for it;
3. Nell's notes (`notes`) are added one by one, as an app would add what its user writes;
4. MeSP trains in a process of its own that may add no more memory than 1.2 times the estimate: the system enforces it;
5. the notes that were held out, which share no run of eight words or tokens with those learned from, say what was gained;
6. at half of the memory that was needed, training is refused by our own error, not ended by the system.

    python sample_apps/desktop/demo.py [--steps N] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # this file is run as a script

from sample_apps.desktop.notes import PROMPTS, example, note_id, notes, shared_runs  # noqa: E402
from sample_apps.desktop.pretrain import BEGIN, DEFAULT_CACHE, END, ensure_model  # noqa: E402

NOTES = 200
STEPS = 200
LIMIT_OVER_ESTIMATE = 1.2
LEAST_FALL = 0.20  # of the validation loss: less, and the demo has failed
COMPLETION_TOKENS = 40


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train a small model to write like an invented user, within a memory limit."
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=DEFAULT_CACHE / "demo", help="bundle, state and plot go there")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE, help="where the pretrained model is kept")
    parser.add_argument("--child", nargs=4, metavar=("BUNDLE", "STATE", "BUDGET", "LIMIT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        bundle, state, budget, limit = arguments.child
        return train_here(Path(bundle), Path(state), int(budget), int(limit), arguments.steps)
    return demonstrate(arguments.cache, arguments.out, arguments.steps)


def demonstrate(cache: Path, out: Path, steps: int) -> int:
    folder = ensure_model(cache)
    began = time.monotonic()
    say(f"1. Model: {folder}")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    bundle, state = out / "everyday.bundle", out / "nell"

    from bespoke import Lora, Personalizer, PersonalModel, Training

    personalizer = Personalizer(
        model=folder,
        optimizers={"mesp": {"update": "adamw"}},
        targets="cuda",  # the torch runtime: on a GPU where there is one, here on the processor
        lora=Lora(rank=8, alpha=16),
        training=Training(
            learning_rate=5e-3, steps=steps, sequence_lengths=(64,), batch_size=4, schedule="cosine", warmup_steps=10
        ),
    )
    estimate = personalizer.estimate()
    personalizer.build(bundle)
    say(f"2. Bundle: {bundle}, {size_of(bundle) / 1e6:.1f} MB. Training should add {estimate.peak_bytes / 1e6:.1f} MB.")

    with PersonalModel.open(bundle, state) as model:
        words = add_notes(model, folder)
        say(
            f"3. Notes: {len(words['train'])} to learn from, {len(words['validation'])} held out; no shared run of eight."
        )
        before = [complete(model, prompt) for prompt in PROMPTS]

    limit = int(LIMIT_OVER_ESTIMATE * estimate.peak_bytes)
    say(f"4. Training in a process that may add {limit / 1e6:.1f} MB:")
    report = train_in_child(bundle, state, limit, limit, steps)
    if "error" in report:
        say(f"   {report['error']}: {report['message']}")
        return 1

    with PersonalModel.open(bundle, state) as model:
        after = [complete(model, prompt) for prompt in PROMPTS]
    show(report, before, after)
    say(f"   plot: {report['plot']}")

    half = report["peak_bytes"] // 2
    shutil.copytree(state, out / "nell_refused")
    refused = train_in_child(bundle, out / "nell_refused", half, limit, steps)
    say(f"6. With {half / 1e6:.1f} MB: {refused.get('error', 'no error')}. {refused.get('message', '')}")
    say(f"{time.monotonic() - began:.0f} seconds after pretraining.")

    fall = 1 - report["validation_loss"] / report["validation_loss_before"]
    passed = fall >= LEAST_FALL and report["accepted"] and refused.get("error") == "BudgetExceeded"
    if not passed:
        say(f"FAILED: the loss fell by {fall:.0%} (at least {LEAST_FALL:.0%}), accepted {report['accepted']}, "
            f"half the memory ended in {refused.get('error')}.")  # fmt: skip
    return 0 if passed else 1


def add_notes(model: Any, folder: Path) -> dict[str, list[str]]:
    """Adds the notes one by one; returns them by the side on which the SDK put each, having checked that none leaks."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        return tokenizer.encode(f"{BEGIN}{text}{END}", add_special_tokens=False).ids

    sides: dict[str, list[str]] = {"train": [], "validation": []}
    for index, note in enumerate(notes(encode, NOTES)):
        added = model.examples.add(example(note), id=note_id(index))
        sides[added.split].append(note)
    leaked = shared_runs(sides["train"], sides["validation"], encode)
    if leaked:
        raise SystemExit(f"validation shares runs of eight with training: {sorted(map(str, leaked))[:3]}")
    return sides


def complete(model: Any, prompt: str) -> str:
    """What the model would write next, up to its end or the last full stop."""
    text = prompt + "".join(model.generate(prompt, max_tokens=COMPLETION_TOKENS))
    return text[: text.rfind(".") + 1] or text


def train_in_child(bundle: Path, state: Path, budget_bytes: int, limit_bytes: int, steps: int) -> dict[str, Any]:
    """Trains within a budget, which the SDK keeps, under a limit, which the system enforces: both over the idle process.

    The report, or {"error": name of the class, "message": ...} where training was refused or ended by the system.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--steps", str(steps)]
    command += ["--child", str(bundle), str(state), str(budget_bytes), str(limit_bytes)]
    # Work this small gains nothing from a second thread, and loses much where the cores are shared.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if not done.stdout.strip():
        return {"error": f"exit status {done.returncode}", "message": "the process was ended without a report"}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def train_here(bundle: Path, state: Path, budget_bytes: int, limit_bytes: int, steps: int) -> int:
    """The child: imports, the model opened (the SDK's idle process), the limit, training. One line of JSON on stdout."""
    from bespoke import BespokeError, PersonalModel
    from bespoke.runtime.limits import enforce_limit

    def on_step(step: int, loss: float) -> None:
        if step % 20 == 0:
            say(f"   step {step}: loss {loss:.2f}")

    try:
        with PersonalModel.open(bundle, state, memory_mb=budget_bytes / 1e6) as model:
            limit = enforce_limit(limit_bytes)
            trained = model.train(steps, on_step=on_step)
    except BespokeError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return error.exit_code
    limit.lift()  # drawing is no part of training
    from bespoke.plot import plot_training

    plot = plot_training(trained, state.with_name("training.svg"))
    print(json.dumps({**trained.as_dict(), "enforced_by": limit.kind, "plot": str(plot)}))
    return 0


def show(report: dict[str, Any], before: list[str], after: list[str]) -> None:
    memory = report["memory"]
    fall = 1 - report["validation_loss"] / report["validation_loss_before"]
    say(
        f"   {report['steps']} steps, {report['seconds'] / report['steps']:.2f} s each; limit enforced by {report['enforced_by']}"
        f"\n5. Validation loss {report['validation_loss_before']:.2f} -> {report['validation_loss']:.2f} nats a token"
        f" ({fall:.0%} less); {'accepted' if report['accepted'] else 'NOT accepted'}; {report['stopped_because']}"
    )
    columns = {
        "estimate": memory["estimate_bytes"],
        "measured": memory["peak_bytes"],
        "limit": memory["limit_bytes"],
        "idle process": memory["idle_bytes"],
        "mapped, dirty": memory["mapped_dirty_bytes"],
        "file pages": memory["file_bytes"],
    }
    say("   memory, MB " + " ".join(f"{name:>14}" for name in columns))
    say("              " + " ".join(f"{size / 1e6:>14.1f}" for size in columns.values()))
    for old, new in zip(before, after, strict=True):
        say(f"   before: {old}\n   after:  {new}")


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def say(text: str) -> None:
    """On stderr in the child, where stdout carries the report; in order with it in the parent."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())
