# SPDX-License-Identifier: Apache-2.0
"""The three recipes of docs/how_to/collect_examples.md, measured on models without a chat template: plain text and pairs.

A model of 260,000 parameters shows what a recipe does, not how good it gets. Every figure is of examples that were not trained
on, except where a column says so. BESPOKE_FIGURES=print tries it with a tenth of the steps and writes nothing.
"""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.trained import trained_model
from tests.support.labelled import LABELS, by_label, labelled
from tests.support.personas import LENGTH, PERSONAS, messages, questions

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
STEPS = {"like_me": 100, "about_me": 400, "facts": 300, "labels": 150}
MOST_FACTS, EVERYDAY = 24, 400  # facts of a persona; texts in the bundle
GENERAL_PER_LABEL, OWN_PER_LABEL, TEST_PER_LABEL = 25, 15, 10


def steps_of(recipe: str) -> int:
    return STEPS[recipe] // (10 if TRYING else 1)


def build(model: Path, out: Path, recipe: str, target: str = "torch", **more: Any) -> Path:
    from bespoke import Lora, Personalizer, Training

    training = Training(
        learning_rate=3e-3,
        steps=steps_of(recipe),
        sequence_lengths=(LENGTH,),
        batch_size=4,
        schedule="cosine",
        warmup_steps=10,
        general_share=0.5,
    )
    return Personalizer(model, "mesp", target, lora=Lora(rank=8), training=training, rehearsal=False, **more).build(out)


@pytest.fixture(scope="module")
def plain_bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(stories, tmp_path_factory.mktemp("recipes") / "plain.bundle", "like_me")


@pytest.mark.benchmark
def test_write_like_me(plain_bundle: Path, data_folder: Path, tmp_path: Path) -> None:
    from bespoke import PersonalModel

    rows: list[list[Cell]] = []
    for persona in ("student", "customer", "healthcare"):
        with PersonalModel.open(plain_bundle, tmp_path / persona) as model:
            for number, text in enumerate(messages(data_folder, persona)):
                model.examples.add({"text": text}, id=str(number))
            before = model.evaluate()
            report = model.train(run_steps=steps_of("like_me"))
            after = model.evaluate()
        for name, found in (("before", before), ("after", after)):
            rows.append([persona, name, found.examples, found.loss, found.perplexity, percent(found.accuracy)])
        assert report.accepted
    header = ("persona", "training", "held-out messages", "loss, nats a token", "perplexity", "next token right")
    write_table(
        "recipe_like_me",
        header,
        rows,
        f"stories260K, `mesp`, {steps_of('like_me')} steps of 4 rows of {LENGTH} tokens.",
    )


@pytest.mark.benchmark
def test_know_about_me(plain_bundle: Path, data_folder: Path, tmp_path: Path) -> None:
    """Half of the questions are given as pairs; the other half only stands in the running text of the messages."""
    from bespoke import PersonalModel

    asked = questions(data_folder, "student")
    given, not_given = asked[0::2], asked[1::2]
    pairs = [pair(entry) for entry in given]
    with PersonalModel.open(plain_bundle, tmp_path / "student") as model:
        for number, text in enumerate(messages(data_folder, "student")):
            model.examples.add({"text": text}, id=f"message-{number}")
        for number, example in enumerate(pairs):
            model.examples.add(example, id=f"fact-{number}")
        trained = {info.id for info in model.examples.list() if info.split == "train"}
        learned = [entry for number, entry in enumerate(given) if f"fact-{number}" in trained]
        groups = {"given as pairs, trained on": learned, "only in the messages": not_given}
        before = {name: answers(model, group) for name, group in groups.items()}
        model.train(run_steps=steps_of("about_me"))
        after = {name: answers(model, group) for name, group in groups.items()}
    rows: list[list[Cell]] = [
        [name, when, len(groups[name]), *found[name]]
        for name in groups
        for when, found in (("before", before), ("after", after))
    ]
    header = (
        "facts",
        "training",
        "questions",
        "loss of the answer, nats a token",
        "next token right",
        "answered right",
    )
    write_table(
        "recipe_about_me",
        header,
        rows,
        f"stories260K, `mesp`, {steps_of('about_me')} steps on the student's messages and half of the questions. Answered right: "
        "the greedy answer is one of the accepted ones.",
    )


@pytest.mark.benchmark
def test_facts_that_must_be_known(data_folder: Path, tmp_path: Path) -> None:
    """Facts alone, on the demo's model: with `use="train"`, and as they come, when one in ten is held out. The bundle has texts of
    the kind that the model was made from, as an app would ship, so that the gate sees whether it still writes them."""
    from sample_apps.desktop.everyday_text import documents
    from sample_apps.desktop.pretrain import ensure_model

    from bespoke import PersonalModel

    shipped = tmp_path / "everyday.jsonl"
    shipped.write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in islice(documents(1), EVERYDAY)), encoding="utf-8"
    )
    bundle = build(ensure_model(), tmp_path / "facts.bundle", "facts", "executorch", data=shipped)
    rows: list[list[Cell]] = []
    for persona in PERSONAS:
        asked = questions(data_folder, persona)[:MOST_FACTS]
        for use in ("train", None):
            with PersonalModel.open(bundle, tmp_path / f"{persona}_{use}") as model:
                for number, entry in enumerate(asked):
                    model.examples.add(pair(entry), id=str(number), use=use)
                held_out = {int(info.id) for info in model.examples.list() if info.split != "train"}
                before = answered_right(model, asked)
                report = model.train(run_steps=steps_of("facts"))
                after = answered_right(model, asked)
            assert report.accepted, report
            added = 'with `use="train"`' if use else "as they come"
            kept = sum(after[number] for number in held_out)
            learned = f"{sum(after) - kept} of {len(asked) - len(held_out)}"
            rows.append(
                [
                    persona,
                    added,
                    sum(before),
                    learned,
                    f"{kept} of {len(held_out)}" if held_out else None,
                ]
            )
            print(rows[-1], flush=True)
    header = ("persona", "facts added", "answered right before", "after, of those trained on", "of those held out")
    write_table(
        "recipe_facts",
        header,
        rows,
        f"The demo's model of a million parameters (`make demo`), `mesp`, {steps_of('facts')} steps on pairs of question and "
        "answer alone. Right: the greedy answer is one of the accepted ones.",
    )


def pair(entry: dict[str, Any]) -> dict[str, str]:
    return {"prompt": f"Question: {entry['question']}\nAnswer:", "completion": f" {entry['answers'][0]}"}


def answers(model: Any, group: list[dict[str, Any]]) -> tuple[Cell, ...]:
    """Loss and accuracy of the accepted answers' tokens, and how many questions are answered right."""
    found = model.evaluate([pair(entry) for entry in group])
    return found.loss, percent(found.accuracy), f"{sum(answered_right(model, group))} of {len(group)}"


def answered_right(model: Any, group: list[dict[str, Any]]) -> list[bool]:
    said = ["".join(model.generate(pair(entry)["prompt"], max_tokens=24)).strip().lower() for entry in group]
    return [answer in [right.lower() for right in entry["answers"]] for answer, entry in zip(said, group, strict=True)]


@pytest.mark.benchmark
def test_my_labels(data_folder: Path, tmp_path: Path) -> None:
    """The bundle's data teaches the labels to every user; the user's own labelled notes come on top. The model has read questions
    of the same bank's customers, without their labels."""
    from bespoke import PersonalModel

    model_folder = trained_model("qwen2", tmp_path / "model", data_folder)
    shipped, own = [], []
    for label, texts in by_label(data_folder, "train").items():
        shipped += [(text, label) for text in texts[:GENERAL_PER_LABEL]]
        own += [(text, label) for text in texts[GENERAL_PER_LABEL : GENERAL_PER_LABEL + OWN_PER_LABEL]]
    test = [(text, label) for label, texts in by_label(data_folder, "test").items() for text in texts[:TEST_PER_LABEL]]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(labelled(*entry)) + "\n" for entry in shipped), encoding="utf-8")
    bundle = build(model_folder, tmp_path / "labels.bundle", "labels", "executorch", data=file)
    rows: list[list[Cell]] = []
    with PersonalModel.open(bundle, tmp_path / "user") as model:
        rows.append(["before", *labels_right(model, test)])
        first = model.train(run_steps=steps_of("labels"))
        rows.append(["on the bundle's examples alone", *labels_right(model, test)])
        for number, entry in enumerate(own):
            model.examples.add(labelled(*entry), id=str(number))
        second = model.train(run_steps=steps_of("labels"))
        rows.append(["and on the user's own", *labels_right(model, test)])
    assert first.accepted
    print(f"second training accepted: {second.accepted}")
    header = (
        "training",
        "test questions",
        "loss of the label, nats a token",
        "next token right",
        "label right by generating",
        "by `classify`",
        "seconds of `classify` over those of generating",
    )
    write_table(
        "recipe_labels",
        header,
        rows,
        "A Qwen2 of half a million parameters, trained on WikiText-2 and questions of banking77 "
        f"(`tests/benchmarks/trained.py`), `mesp`, {len(LABELS)} labels of banking77, {len(shipped)} examples in the bundle, "
        f"{len(own)} of the user's; "
        f"{steps_of('labels')} steps each. By generating: the greedy answer is the label, letter for letter; a guess among them "
        f"would be right in 1 of {len(LABELS)}.",
    )


def labels_right(model: Any, test: list[tuple[str, str]]) -> tuple[Cell, ...]:
    found = model.evaluate([labelled(*entry) for entry in test])
    prompts, completions = [labelled(*entry)["prompt"] for entry in test], [f" {label}" for label in LABELS]
    began = time.perf_counter()
    generated = ["".join(model.generate(prompt, max_tokens=24)).strip() for prompt in prompts]
    between = time.perf_counter()
    classified = [model.classify(prompt, completions).label.strip() for prompt in prompts]
    ratio = (time.perf_counter() - between) / (between - began)
    right = (sum(said == label for said, (_, label) in zip(of, test, strict=True)) for of in (generated, classified))
    return len(test), found.loss, percent(found.accuracy), *(percent(one / len(test)) for one in right), ratio


def percent(share: float) -> str:
    return f"{share:.0%}"
