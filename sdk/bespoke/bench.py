# SPDX-License-Identifier: Apache-2.0
"""Measures what this device can do: the core's kernels, and steps and answers of a bundle.

A bundle is measured as an app uses it: examples are added to a new state, which is deleted afterwards, and each plan trains on them
under its own memory limit. Examples are random tokens, because the time of a step does not depend on them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.plan_records import MethodRecord
from bespoke.bundle.reader import read_bundle
from bespoke.core.child import run
from bespoke.personal_model import PersonalModel
from bespoke.rules.bench_report import AnswerRate, BundleBench, PlanSteps, Spread
from bespoke.rules.report import TrainReport

__all__ = ["measure"]

Progress = Callable[[str], None]
STEPS, QUICK_STEPS = 5, 1  # of each plan, after a first one that reads the weights from the disk
ANSWERS, QUICK_ANSWERS = 5, 1
PROMPT_TOKENS, ANSWER_TOKENS = 64, 32


def measure(
    bundle: Path | None = None,
    *,
    quick: bool = False,
    progress: Progress = lambda what: None,
    **trust: Any,
) -> dict[str, Any]:
    """Returns the fields of a BenchReport as JSON values.

    Args:
        bundle: A bundle whose steps and answers are measured as well.
        quick: Whether to take few turns with a small model, to see that everything works.
        progress: Called with what is measured next.
        trust: As for `read_bundle`.

    Raises the errors of `read_bundle` before it measures, and MissingDependency without a core that runs.
    """
    if bundle is not None:
        read_bundle(bundle, **trust).close()
    progress("the device")
    report = run({"verb": "bench", "quick": quick})
    for added in ("enforced_by", "bytes_read"):  # by the process that asked
        report.pop(added, None)
    if bundle is not None:
        measured = asdict(_measure_bundle(bundle, quick, progress, trust))
        report["bundle"] = {**measured, "plans": list(measured["plans"])}
    return report


def _measure_bundle(bundle: Path, quick: bool, progress: Progress, trust: dict[str, Any]) -> BundleBench:
    with read_bundle(bundle, **trust) as opened:
        manifest = opened.manifest
    plans = []
    engine = ""
    for budget, method in _variants(manifest):
        memory_mb = None if budget is None else budget / 1e6
        with (
            tempfile.TemporaryDirectory() as state,
            PersonalModel.open(bundle, state, memory_mb=memory_mb, **trust) as model,
        ):
            engine = model.engine
            progress(f"{method.name} within {'its budget' if memory_mb is None else f'{memory_mb:g} MB'}")
            plans.append(_steps(model, method, manifest.text.vocab_size, QUICK_STEPS if quick else STEPS))
    with tempfile.TemporaryDirectory() as state, PersonalModel.open(bundle, state, **trust) as model:
        progress("answers")
        answers = _answers(model, manifest, QUICK_ANSWERS if quick else ANSWERS) if model.describe().answers else None
    return BundleBench(manifest.model.name, engine, tuple(plans), answers)


def _variants(manifest: Manifest) -> Iterator[tuple[int | None, MethodRecord]]:
    """Yields (memory limit, method) for each budget of the dial. None: the bundle's own budget."""
    for method in manifest.methods:
        yield from method.variants


def _steps(model: PersonalModel, method: MethodRecord, vocab_size: int, steps: int) -> PlanSteps:
    """Trains on rows as long as the longest plan takes, since a shorter batch would run by a plan for shorter ones."""
    plan = method.plans[-1]
    length, rows = plan.sequence_length, method.training.batch_size
    for row in range(rows):
        tokens = _tokens(length + 1, row, vocab_size)
        model.examples.add({"tokens": tokens, "mask": [0] + [1] * length}, id=str(row), use="train")
    # A run that has not ended is not judged. The bundle's own rows have other lengths.
    report = model.train(method=method.name, run_steps=steps + 2, most_steps=steps + 1, general_share=0.0)
    return PlanSteps(
        method=method.name,
        sequence_length=length,
        batch_size=rows,
        budget_bytes=report.memory.planned_for_bytes,
        estimate_bytes=plan.estimate.peak_bytes,
        peak_bytes=report.peak_bytes,
        seconds=_spread(_step_seconds(report)),
    )


def _step_seconds(report: TrainReport) -> Sequence[float]:
    return report.step_seconds[1:] or report.step_seconds


def _answers(model: PersonalModel, manifest: Manifest, turns: int) -> AnswerRate | None:
    prompt_tokens = min(PROMPT_TOKENS, manifest.context_length // 2)
    most = min(ANSWER_TOKENS, manifest.context_length - prompt_tokens)
    firsts, rates = [], []
    for turn in range(turns + 1):
        with model.conversation(max_tokens=most) as conversation:
            began = time.perf_counter()
            pieces = conversation.feed(_tokens(prompt_tokens, turn, manifest.text.vocab_size))
            next(pieces)
            first = time.perf_counter()
            tokens = sum(piece.token is not None for piece in pieces)
            ended = time.perf_counter()
        if tokens and turn > 0:  # the first one starts the process
            firsts.append(first - began)
            rates.append(tokens / (ended - first))
    return AnswerRate(prompt_tokens, _spread(firsts), _spread(rates)) if rates else None


def _tokens(count: int, row: int, vocab_size: int) -> list[int]:
    """Returns tokens from all of the vocabulary, others for each row. Multiples of this prime have no pattern."""
    return [(row * count + place + 1) * 2_654_435_761 % 2**32 % vocab_size for place in range(count)]


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))
