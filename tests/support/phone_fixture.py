# SPDX-License-Identifier: Apache-2.0
"""What the tests of bindings start from: bundles of stories260K, and what Python does with them.

A folder then holds chat.bundle (stories260K, for three budgets, signed), signer.txt (its public key), notes.json, python.json (the
losses of a run of STEPS steps in one go, the greedy answers to two turns), older.bundle (the same weights with a chat template,
behaviour rows and a method that learns from corrections), older.json (what it measures and answers), and in archives/ what is
delivered: weights.zip and method.zip of chat and of older, delta/delta.zip from older to chat, and chat/bundle.zip.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

STEPS = 50
# 1.8, 0.75 and 0.55 of what the fastest plan of chat.bundle takes. An estimate that says so takes as long as the build.
BUDGETS_MB = (55.2, 23.0, 16.9)
CHAT_TEMPLATE = """{% for message in messages %}<|{{ message['role'] }}|>
{{ message['content'] }}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
NOTES = [
    "Once upon a time there was a small dog 🐕 that liked the sea.",
    "Lily and Tom built a boat of paper. It was red.",
    "The moon was big. Tim said: “How far is it?” — nobody knew.",
    "Das Mädchen aß Äpfel, naïve façade, 日本語, 👩🏽‍🚀 and 🇩🇪.",
    "A bird sang in the tree, and the cat listened.",
    "Mom made soup. It was hot, so they waited.",
    "Ben lost his hat in the wind and laughed.",
    "They ran to the park and played until dark.",
]


def make(model: Path, out: Path) -> None:
    """All of it."""
    chat = build_bundle(model, out)
    what_python_does(chat, out)
    pack_archives(model, out)
    what_python_makes_of_corrections(out / "older.bundle", out)


def core_folder() -> Path:
    """With include/ and lib/ of the installed core."""
    from bespoke.core.finding import find

    core = find()
    assert core.path is not None, f"no device core: {core.reason}. {core.next_step}"
    return core.path.parents[1]


def build_bundle(model: Path, out: Path) -> Path:
    from bespoke import Budget, Lora, Personalizer, Training
    from bespoke.bundle.signature import generate_key

    shutil.rmtree(out / "chat.bundle", ignore_errors=True)
    # For Kotlin. A JVM takes some megabytes on its way, and in its first slice, which loads classes, 20 MB were seen: the plans for
    # rows of 512 tokens, which no note needs, and the first budget leave room for them.
    training = Training(learning_rate=1e-3, sequence_lengths=(128, 512), batch_size=2, steps=STEPS, seed=1)
    methods = {"mesp": {}, "mezo": {"learning_rate": 1e-4}}
    key, signer = generate_key()
    (out / "signer.txt").write_text(signer.hex())

    return Personalizer(
        model,
        methods,
        "executorch",
        context=512,
        lora=Lora(rank=4),
        training=training,
        budget=Budget(memory_mb=BUDGETS_MB),
        data=None,
        signing_key=key,
    ).build(out / "chat.bundle")


def pack_archives(model: Path, out: Path) -> None:
    from bespoke import Lora, Personalizer, Training, pack

    archives, older, chat = out / "archives", out / "older.bundle", out / "chat.bundle"
    for folder in (archives, older, out / "model"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, out / "model")
    (out / "model" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    training = Training(learning_rate=1e-3, sequence_lengths=(128,), batch_size=2, steps=20, seed=1)
    method = {"mesp": {"preferences": "simpo"}}
    Personalizer(out / "model", method, "executorch", context=512, lora=Lora(rank=4), training=training).build(older)
    pack(older, archives / "older")
    pack(chat, archives / "chat")
    pack(chat, archives / "delta", since=older)
    pack(chat, archives / "chat", whole=True)


def what_python_makes_of_corrections(bundle: Path, out: Path) -> None:
    """The same calls as in Kotlin's CorrectionsTest and Swift's CorrectionsTests."""
    from bespoke import PersonalModel

    shutil.rmtree(out / "corrected", ignore_errors=True)
    with PersonalModel.open(bundle, out / "corrected") as model:
        model.correct(
            [{"role": "user", "content": "Where is the key?"}, {"role": "assistant", "content": "In the sea."}],
            "Under the blue pot.",
        )
        model.examples.add({"text": "The key of the shed hangs behind the green door."}, id="note", use="train")
        with model.conversation(max_tokens=12, notes=True) as conversation:
            noted = "".join(
                piece.text
                for piece in conversation.feed([{"role": "user", "content": "Where is the key of the shed?"}])
            )
        report = model.train()
        evaluation = model.evaluate_behaviour().evaluation
    found = {
        "noted": noted,
        "losses": report.losses,
        "refused_because": report.refused_because,
        "behaviour_loss": report.behaviour_loss,
        "behaviour_tokens": report.behaviour_tokens,
        "base_loss": evaluation.base_loss,
        "examples": evaluation.examples,
    }
    (out / "older.json").write_text(json.dumps(found))


def what_python_does(bundle: Path, out: Path) -> None:
    from bespoke import PersonalModel

    shutil.rmtree(out / "python", ignore_errors=True)
    with PersonalModel.open(bundle, out / "python") as model:
        for number, note in enumerate(NOTES):
            model.examples.add({"text": note}, id=f"note-{number}", use="train")
        report = model.train()
        with model.conversation(max_tokens=20) as conversation:
            turns = ["".join(piece.text for piece in conversation.feed(text)) for text in ("Once upon", " Then Tom")]
    found = {
        "losses": report.losses,
        "accepted": report.accepted,
        "turns": turns,
    }
    (out / "python.json").write_text(json.dumps(found))
    (out / "notes.json").write_text(json.dumps(NOTES, ensure_ascii=False), encoding="utf-8")
