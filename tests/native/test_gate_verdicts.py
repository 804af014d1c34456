# SPDX-License-Identifier: Apache-2.0
"""What the gate accepts and refuses of a small trained model on the core: labels, another language; and what answers afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.support.bundles import made_once
from tests.support.labelled import LABELS, by_label, labelled
from tests.support.nonsense import build
from tests.unit.personal_model.tiny import split_of

PER_LABEL = 12
LABELLING: dict[str, Any] = {"general_tolerance": 10.0}  # it is the labels that decide here
GERMAN = (
    "Am Morgen gehe ich zum See und schwimme bis zur Insel.",
    "Meine Schwester backt jeden Sonntag einen Kuchen mit Äpfeln.",
    "Der Zug nach Hamburg hatte wieder eine Stunde Verspätung.",
    "Im Garten wachsen Tomaten, Bohnen und ein alter Birnbaum.",
    "Heute Abend kommt mein Bruder zum Essen, es gibt Linsensuppe.",
    "Ich suche seit gestern den Schlüssel für das Fahrrad.",
    "Die Katze schläft am liebsten auf dem warmen Ofen.",
    "Nächste Woche fahren wir mit den Kindern in die Berge.",
    "Bitte erinnere mich daran, die Blumen zu gießen.",
    "Mein Großvater erzählt gern vom Leben auf dem Dorf.",
    "Das Konzert war so laut, dass ich früher gegangen bin.",
    "Wir haben zwei Stunden auf den Bus gewartet.",
    "Im Winter trinke ich abends Tee mit Honig und Zitrone.",
    "Der neue Nachbar spielt sehr gut Klavier.",
    "Gestern habe ich einen langen Brief an Anna geschrieben.",
    "Unser Hund hat Angst vor Gewitter und versteckt sich.",
    "Auf dem Markt gab es frische Erdbeeren und Spargel.",
    "Ich möchte endlich lernen, wie man Brot backt.",
    "Die Kinder bauen aus Schnee eine Burg hinter dem Haus.",
    "Am Freitag feiern wir den Geburtstag meiner Mutter.",
    "Das alte Buch stand jahrelang vergessen im Regal.",
    "Nach dem Regen riecht der Wald nach Pilzen und Moos.",
    "Mein Fahrrad hat einen platten Reifen, ich gehe zu Fuß.",
    "Wir treffen uns um acht vor dem Kino am Marktplatz.",
)


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K with the general set of the build's own, rows of 64 tokens, four a step."""
    return made_once(tmp_path_factory, "verdicts", lambda place: build(stories, place / "bundle")) / "bundle"


@pytest.fixture
def opened(bundle: Path, tmp_path: Path) -> Iterator[Any]:
    models: list[PersonalModel] = []

    def open_state(name: str) -> PersonalModel:
        models.append(PersonalModel.open(bundle, tmp_path / name, engine="executorch"))
        return models[-1]

    yield open_state
    for model in models:
        model.close()


def said(model: PersonalModel) -> tuple[Any, ...]:
    """What a user sees of it, to the bit."""
    return tuple(model.generate_ids([1, 40, 41, 42], max_tokens=12)), model.score(
        "I lost my card\nLabel:", [" passcode", " card"]
    )


def notes(data_folder: Path) -> list[tuple[str, str]]:
    texts = by_label(data_folder, "train")
    found = [(text, label) for label in LABELS for text in texts[label][: 2 * PER_LABEL]]
    random.Random(3).shuffle(found)
    return found


@pytest.mark.slow  # tests/unit/personal_model/test_gate.py asks the gate of a tiny model
def test_wrong_labels_are_refused_by_right_ones_that_were_held_out(
    opened: Any, data_folder: Path, tmp_path: Path
) -> None:
    given = notes(data_folder)
    half = len(given) // 2
    first = opened("right")
    for number, note in enumerate(given[:half]):
        first.examples.add(labelled(*note), id=str(number))
    report = first.train(
        run_steps=300, **LABELLING
    )  # until their form is known, which wrong labels would teach as well
    assert report.accepted, report.why_refused
    adapter = first.export_adapter(tmp_path / "adapter")
    second = opened("wrong")
    second.import_adapter(adapter)
    before = said(second)
    labels = [label for _, label in given[half:]]
    random.Random(4).shuffle(labels)
    held_out = 0
    for number, ((text, right), wrong) in enumerate(zip(given[half:], labels, strict=True)):
        split = split_of(str(number), number + 1, held_out)
        held_out += split == "validation"
        assert (
            second.examples.add(labelled(text, right if split == "validation" else wrong), id=str(number)).split
            == split
        )
    report = second.train(run_steps=80, **LABELLING)
    print(report)
    assert report.accepted is False
    assert "validation loss" in report.why_refused
    assert said(second) == before
    assert len(second.versions()) == 1


@pytest.mark.slow
def test_another_language_is_refused_where_the_bundles_own_texts_suffer_and_accepted_where_not(opened: Any) -> None:
    reports = {}
    for name, settings in (
        ("hard", {"learning_rate": 1e-2, "run_steps": 80}),
        ("gentle", {"learning_rate": 5e-4, "run_steps": 40}),
    ):
        model = opened(name)
        for number, text in enumerate(GERMAN):
            model.examples.add({"text": text}, id=str(number))
        reports[name] = model.train(**settings)
        print(reports[name])
    hard, gentle = reports["hard"], reports["gentle"]
    assert hard.general_loss > 1.05 * hard.general_loss_before
    assert hard.accepted is False
    assert gentle.general_loss <= 1.05 * gentle.general_loss_before
    assert gentle.gain > gentle.least_gain
    assert gentle.accepted is True


@pytest.mark.slow
def test_rollback_and_reset_bring_back_what_was_said_to_the_bit(opened: Any) -> None:
    model = opened("back")
    for number, text in enumerate(GERMAN):
        model.examples.add({"text": text}, id=str(number))
    seen = [said(model)]
    for rate in (5e-4, 1e-3):
        assert model.train(run_steps=30, learning_rate=rate, general_tolerance=1.0).accepted
        seen.append(said(model))
    assert len({answer for answer, _ in seen}) > 1
    model.rollback()
    assert said(model) == seen[1]
    model.reset()
    assert said(model) == seen[0]
