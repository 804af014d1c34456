# SPDX-License-Identifier: Apache-2.0
"""Runs that a gate should accept and runs that it should refuse, for each kind of bundle that gives it other things to judge by."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support.bundles import drop_fields_of_1_7, write_jsonl
from tests.support.nonsense import CHARACTERS, MESSAGES, NONSENSE, garbled
from tests.support.personas import PERSONAS, messages, read_jsonl

LENGTH, BATCH, STEPS, RATE, RANK = 128, 4, 60, 1e-3, 8
SHARE = 0.3  # of a run's rows, where it rehearses
LONG = 4  # times the steps and the rate of a run that forgets the model
SENSE = "sense"
"""A person's words with the settings of the bundle: a good run."""
FORGETS = "forgets"
"""A person's words without rehearsal, for long at a high rate: a run that does harm."""


@dataclass(frozen=True)
class Case:
    """A kind of bundle.

    turns:     whether the model has them
    role:      whose messages are the person's words
    rehearses: whether runs have rows besides the person's
    """

    name: str
    build: dict[str, Any] = field(default_factory=dict)
    turns: bool = True
    role: str = "assistant"
    file: bool = False
    before_1_7: bool = False
    rehearses: bool = True


CASES = (
    Case("rehearsed"),
    Case("rehearsal=False", {"rehearsal": False}, rehearses=False),
    Case("data=FILE", file=True),
    Case("data=None", {"data": None}, rehearses=False),
    Case("no turns", turns=False),
    Case('train_on="user"', {"train_on": "user"}, role="user"),
    Case("built before 1.7", {"rehearsal": False}, before_1_7=True, rehearses=False),
)


@dataclass(frozen=True)
class Verdict:
    """`words`: SENSE, FORGETS or a kind of nonsense."""

    words: str
    rehearses: bool
    accepted: bool
    refused_because: str | None
    behaviour: tuple[float | None, float | None]
    general: tuple[float | None, float | None]


def settings_digest(case: Case) -> str:
    """A digest of what decides a verdict here and in the defaults of a run. It does not change with the code of the gate."""
    from bespoke import Training

    defaults = Training()
    decides = {
        "case": asdict(case),
        "run": [LENGTH, BATCH, STEPS, RATE, RANK, SHARE, LONG],
        "messages": [MESSAGES, CHARACTERS],
        "gate": [defaults.general_tolerance, defaults.useful_gain],
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]


def build(case: Case, chat: Path, stories: Path, data_folder: Path, out: Path) -> Path:
    from bespoke import Lora, Personalizer, Training

    if out.is_dir():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    more = dict(case.build)
    if case.file:
        rows = [turns("How was it?", text, case.role) for text in messages(data_folder, PERSONAS[0])]
        more["data"] = write_jsonl(out.with_suffix(".jsonl"), rows)
    training = Training(
        learning_rate=RATE, steps=STEPS, sequence_lengths=(LENGTH,), batch_size=BATCH, general_share=SHARE
    )
    model = chat if case.turns else stories
    Personalizer(model, "mesp", "executorch", lora=Lora(rank=RANK), training=training, **more).build(out)
    if case.before_1_7:
        _age(out)
    return out


def _age(bundle: Path) -> None:
    """Makes its manifest the one of a bundle that an older build wrote."""
    manifest = bundle / "manifest.json"
    document = json.loads(manifest.read_text(encoding="utf-8"))
    document["format_version"]["minor"] = 6
    drop_fields_of_1_7(document)
    data = json.dumps(document).encode()
    manifest.write_bytes(data)
    (bundle / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n", encoding="ascii")


def verdict(
    case: Case, bundle: Path, words: str, seed: int, data_folder: Path, state: Path, *, rehearses: bool
) -> Verdict:
    """Trains on one person's messages, or on the nonsense made of them, and returns what the gate says."""
    from bespoke import PersonalModel

    rng = random.Random(f"{words} {seed}")
    persona = PERSONAS[1 + seed % 2]  # the file of data holds the words of the first
    said = [(row["topic"], row["text"][:CHARACTERS]) for row in read_jsonl(_messages(data_folder, persona))]
    settings: dict[str, Any] = {} if rehearses else {"general_share": 0.0}
    if words == FORGETS:
        settings |= {"run_steps": LONG * STEPS, "learning_rate": LONG * RATE}
    shutil.rmtree(state, ignore_errors=True)
    with PersonalModel.open(bundle, state) as model:
        for topic, text in random.Random(seed).sample(said, min(MESSAGES, len(said))):
            learned = garbled(text, words, rng) if words in NONSENSE else text
            model.examples.add(turns(topic, learned, case.role) if case.turns else {"text": learned})
        report = model.train(seed=seed, **settings)
    shutil.rmtree(state)
    return Verdict(
        words,
        rehearses,
        bool(report.accepted),
        report.refused_because,
        (report.behaviour_loss_base, report.behaviour_loss),
        (report.general_loss_before, report.general_loss),
    )


def turns(topic: str, text: str, role: str) -> dict[str, Any]:
    """A conversation in which `role` says the text."""
    if role == "user":
        return {"messages": [{"role": "user", "content": text}]}
    return {"messages": [{"role": "user", "content": topic}, {"role": "assistant", "content": text}]}


def _messages(data_folder: Path, persona: str) -> Path:
    return data_folder / "personas" / f"{persona}.messages.jsonl"
