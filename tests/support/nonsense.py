# SPDX-License-Identifier: Apache-2.0
"""Runs that a gate should accept and runs that it should refuse: people's messages, and the same messages made nonsense."""

from __future__ import annotations

import random
import shutil
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.personas import LENGTH, PERSONAS, messages, shakespeare_passages

STEPS, BATCH, MESSAGES, CHARACTERS = 40, 4, 30, 240
WRITERS = (*PERSONAS, "shakespeare")
NONSENSE = ("shuffled", "reversed", "random")
STARTS = ("base", "accepted")


@dataclass(frozen=True)
class Judged:
    """A run's verdict, and what it rests on."""

    start: str
    words: str  # "sense" or a kind of nonsense
    accepted: bool
    user: tuple[float | None, float | None]
    general: tuple[float | None, float | None]


def build(model: Path, out: Path, targets: str = "executorch", **more: Any) -> Path:
    """As the personas' benchmark trains, for fewer steps."""
    from bespoke import Lora, Personalizer, Training

    training = Training(
        learning_rate=3e-3,
        steps=STEPS,
        sequence_lengths=(LENGTH,),
        batch_size=BATCH,
        schedule="cosine",
        warmup_steps=10,
    )
    return Personalizer(model, "mesp", targets, lora=Lora(rank=8), training=training, rehearsal=False, **more).build(
        out
    )


def garbled(text: str, kind: str, rng: random.Random) -> str:
    """The text's letters in another order, or as many letters drawn at random."""
    if kind == "reversed":
        return text[::-1]
    if kind == "shuffled":
        letters = list(text)
        rng.shuffle(letters)
        return "".join(letters)
    return "".join(rng.choice(string.ascii_letters + string.digits + " .,!?") for _ in text)


def verdicts(bundle: Path, data_folder: Path, place: Path, seed: int) -> Iterator[Judged]:
    """Judges one writer's messages and nonsense, from the base and, if the messages' adapter was accepted, from that adapter."""
    rng = random.Random(seed)
    writer = WRITERS[seed % len(WRITERS)]
    texts = (
        shakespeare_passages(data_folder, 200, CHARACTERS) if writer == "shakespeare" else messages(data_folder, writer)
    )
    texts = rng.sample([text[:CHARACTERS] for text in texts], min(2 * MESSAGES, len(texts)))
    first, second = texts[: len(texts) // 2], texts[len(texts) // 2 :]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    sense = _trained(bundle, place / "sense", first, seed, "base", "sense")
    yield sense
    yield from (_nonsense(bundle, place, first, seed, kind, None) for kind in NONSENSE)
    if not sense.accepted:
        return
    from bespoke import PersonalModel

    with PersonalModel.open(bundle, place / "sense") as model:
        adapter = model.export_adapter(place / "adapter")
    yield from (_nonsense(bundle, place, second, seed, kind, adapter) for kind in NONSENSE)
    yield _trained(bundle, place / "sense", second, seed, "accepted", "sense")


def _nonsense(bundle: Path, place: Path, texts: list[str], seed: int, kind: str, adapter: Path | None) -> Judged:
    rng = random.Random(f"{kind} {seed}")
    start = "base" if adapter is None else "accepted"
    return _trained(
        bundle, place / f"{kind}-{start}", [garbled(text, kind, rng) for text in texts], seed, start, kind, adapter
    )


def _trained(
    bundle: Path, state: Path, texts: list[str], seed: int, start: str, words: str, adapter: Path | None = None
) -> Judged:
    """What the gate says after a run on these texts, and on those that the state had before."""
    from bespoke import PersonalModel

    with PersonalModel.open(bundle, state) as model:
        if adapter is not None:
            model.import_adapter(adapter)
        for text in texts:
            model.examples.add({"text": text})
        report = model.train(seed=seed)
    assert report.stopped_because == "finished"
    assert report.judged_on == "validation"
    return Judged(
        start,
        words,
        report.accepted,
        (report.validation_loss_before, report.validation_loss),
        (report.general_loss_before, report.general_loss),
    )
