# SPDX-License-Identifier: Apache-2.0
"""An update of the bundle with the same base and another chat template: the old adapter was trained on other tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bespoke import Personalizer, PersonalModel, Training
from tests.support import reading

FACTS = [
    ("Who?", "Tom and his dog."),
    ("Where?", "In the big tree."),
    ("When?", "After the rain."),
    ("Why?", "The sun was hot."),
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[%s {{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[%s assistant] {% endif %}"
)


@pytest.fixture(scope="session")
def bundles(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """One with a template, one with another, and one with the first template and longer rows."""
    place = tmp_path_factory.mktemp("templates")
    for name, sign, length in (("old", "old", 48), ("new", "other turn of", 48), ("longer", "old", 64)):
        model = place / f"{name}-model"
        shutil.copytree(stories, model)
        settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE.replace("%s", sign)}
        (model / "tokenizer_config.json").write_text(json.dumps(settings))
        training = Training(sequence_lengths=(length,), learning_rate=5e-3, steps=30, general_tolerance=100.0)
        Personalizer(model, "mesp", training=training, data=None, licence="none").build(place / name)
    return place / "old", place / "new", place / "longer"


def answer(model: PersonalModel) -> str:
    return "".join(model.generate([{"role": "user", "content": "Who?"}], max_tokens=12))


def test_an_adapter_of_another_template_is_judged_again_before_it_answers(
    bundles: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    old, new, _ = bundles
    state = tmp_path / "alice"
    with PersonalModel.open(old, state) as model:
        for question, words in FACTS:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": words}]
            model.examples.add({"messages": messages}, use="train")
        assert model.train().accepted
        learned = answer(model)
        assert not model.versions()[-1].other_text
    with PersonalModel.open(new, tmp_path / "empty") as model:
        base = answer(model)
    with PersonalModel.open(new, state) as model:
        assert [version.other_text for version in model.versions()] == [True]
        assert answer(model) == base
        report = model.train(run_steps=20)
        assert reading.newest_run(model._core.state)["started_from"] == 1
        assert report.accepted  # against the base, which answered
        assert [version.other_text for version in model.versions()] == [True, False]
        assert answer(model) != base
        rolled = model.rollback()
        assert rolled is None
        assert answer(model) == base
    with PersonalModel.open(old, state) as model:  # the app went back to its old version
        assert [version.other_text for version in model.versions()] == [False]
        assert answer(model) == learned


def test_longer_rows_by_the_same_template_change_nothing_for_an_adapter(
    bundles: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    old, _, longer = bundles
    with PersonalModel.open(old, tmp_path / "alice") as model:
        for question, words in FACTS:
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": words}]
            model.examples.add({"messages": messages}, use="train")
        assert model.train().accepted
        learned = answer(model)
    with PersonalModel.open(longer, tmp_path / "alice") as model:
        assert not model.versions()[-1].other_text
        assert answer(model) == learned


def test_an_adapter_that_does_not_answer_can_be_rolled_back(bundles: tuple[Path, Path, Path], tmp_path: Path) -> None:
    old, new, _ = bundles
    with PersonalModel.open(old, tmp_path / "alice") as model:
        model.examples.add({"prompt": "Who?", "completion": "Tom."}, use="train")
        assert model.train().accepted
    with PersonalModel.open(new, tmp_path / "alice") as model:
        assert model.rollback() is None
        assert model.versions() == []
