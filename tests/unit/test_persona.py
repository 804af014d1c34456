# SPDX-License-Identifier: Apache-2.0
"""A persona's messages are added line by line, as an app would, learned from, and answered with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.support.bundles import stories_bundle
from tests.support.personas import messages

__all__ = ["stories_bundle"]


@pytest.mark.slow  # the README's code does the same for fewer lines
def test_a_persona_is_added_line_by_line_trained_and_answers(
    stories_bundle: Path, data_folder: Path, tmp_path: Path
) -> None:
    with PersonalModel.open(stories_bundle, tmp_path / "state") as model:
        untrained = "".join(model.generate("My health", max_tokens=24))
        for number, text in enumerate(messages(data_folder, "healthcare")[:20]):
            added = model.examples.add({"text": text}, id=str(number))
            assert added.id == str(number)
        before = model.evaluate().loss
        report = model.train(run_steps=20)
        assert report.stopped_because == "finished"
        assert report.judged_on == "validation"
        assert report.validation_loss_before is not None
        assert report.validation_loss is not None
        assert report.validation_loss < report.validation_loss_before - 0.3
        assert report.accepted
        assert model.evaluate().loss < before - 0.3  # on all that is held out, of which the gate reads half
        assert "".join(model.generate("My health", max_tokens=24)) != untrained
        adapter = model.export_adapter(tmp_path / "adapter")
    assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 4
