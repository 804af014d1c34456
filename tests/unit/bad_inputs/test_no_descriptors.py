# SPDX-License-Identifier: Apache-2.0
"""A process that may open no more files: each verb ends with an error of ours, nothing is lost, and afterwards everything works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checks import few_of
from tests.unit.bad_inputs.asking import Lab

LEFT = (0, 1, 2, 3, 5, 8)  # descriptors that are free
CALLS = [
    "opened().close()",
    "PersonalModel.reset_for_new_base(bundle, state).close()",
    "model.examples.add({'text': 'One more note: the lake is frozen.'}, id='frozen')",
    "model.examples.list()",
    "model.train(run_steps=1)",
    "model.evaluate()",
    "model.generate('Note', max_tokens=2)",
    "read(model.generate('Note', max_tokens=2))",
    "model.score('Note', [' 1'])",
    "model.versions()",
    "model.rollback()",
    "model.export_adapter('adapter', base=True)",
    "model.export_merged('merged', model_folder, base=True)",
    "model.import_adapter('adapter', trust_base=True)",
    "Personalizer(model_folder).estimate()",
    "Personalizer(model_folder).build('new.bundle')",
    "pack(bundle, 'zips')",
    "install('nosuch.zip', 'out')",
    "export_base(bundle, 'base')",
    "read_bundle(bundle).verify_files()",
    "read(read_examples('notes.jsonl'))",
    "read_task('labels', 'notes.jsonl')",
    "command('inspect', bundle)",
    "command('verify', bundle)",
    "command('train', bundle, '--state', state, '--run-steps', 1)",
    "command('versions', bundle, '--state', state)",
    "command('plugins')",
]


@pytest.fixture(scope="module")
def lab(stories_bundle: Path, stories: Path, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("no_descriptors")
    shutil.copytree(state, folder / "state")
    (folder / "notes.jsonl").write_text('{"text": "a note", "label": "b"}\n' * 3)
    with Lab(stories_bundle, stories, folder) as lab:
        yield lab


@pytest.mark.parametrize("call", few_of(CALLS, [call for call in CALLS if not call.endswith(".estimate()")]))
def test_a_verb_without_free_descriptors_ends_with_an_error_of_ours(lab: Lab, call: str) -> None:
    before = lab.ask("str(len(model.examples.list()))")["said"]
    for left in (
        LEFT[:2] if "Personalizer" in call else LEFT
    ):  # what compiles needs more, and takes long where it has them
        answer = lab.ask(f"without_descriptors(lambda: {call}, {left})")
        assert answer["ours"], f"{left} left: {answer}"
    after = lab.ask("str(len(model.examples.list()))")
    assert after["raised"] is None
    assert int(after["said"]) >= int(before)
    assert lab.ask("opened().close()")["raised"] is None
