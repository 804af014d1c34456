# SPDX-License-Identifier: Apache-2.0
"""A bundle without a method, and one of before the plan for answers: what they do, and what they say of the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.errors import ConfigError, GenerationError
from bespoke.golden.prover import verify_bundle
from tests.support.bundles import drop_later_fields
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke
from tests.unit.golden.bundles import rewrite_manifest
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import ALPHA, RANK, numbers

LENGTHS = (16, 24)
PROMPT = [41, 42, 43]


@pytest.fixture(scope="module")
def answers_only(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the tiny model, so that its adapters fit, built with the command line's word for it."""
    out = tmp_path_factory.mktemp("answers") / "bundle"
    bespoke(
        "build",
        out,
        "--model",
        tiny_folder / "model",
        "--optimizers",
        "none",
        "--data",
        "none",
        "--licence",
        "MIT",
        "--rank",
        RANK,
        "--alpha",
        ALPHA,
        "--sequence-lengths",
        ",".join(map(str, LENGTHS)),
        "--context",
        40,
    ).ok()
    return out


def test_a_bundle_without_a_method_answers_and_takes_examples_and_adapters(
    answers_only: Path, opened: Open, tmp_path: Path
) -> None:
    trained = opened(count=12)
    trained.train()
    trained.export_adapter(tmp_path / "adapter")
    with PersonalModel.open(answers_only, tmp_path / "state") as model:
        assert model.examples.add(numbers(3)).truncated_tokens == 0
        long = {"tokens": [5] * 60, "mask": [0] + [1] * 59}
        assert model.examples.add(long).truncated_tokens == 60 - (LENGTHS[-1] + 1)  # the longest of sequence_lengths
        base = list(model.generate_ids(PROMPT, max_tokens=8))
        model.import_adapter(tmp_path / "adapter")
        assert (
            list(model.generate_ids(PROMPT, max_tokens=8)) == list(trained.generate_ids(PROMPT, max_tokens=8)) != base
        )


def test_training_and_evaluating_without_a_method_say_so(answers_only: Path, tmp_path: Path) -> None:
    with PersonalModel.open(answers_only, tmp_path / "state") as model:
        model.examples.add(numbers(3))
        for verb in (model.train, model.evaluate, model.check_settings):
            with pytest.raises(ConfigError, match="without methods") as caught:
                verb()
            assert "with an optimizer" in caught.value.next_step


def test_it_proves_its_answers(answers_only: Path) -> None:
    with read_bundle(answers_only) as bundle:
        report = verify_bundle(bundle)
    assert [(check.what, check.method) for check in report.checks] == [
        ("files", None),
        ("next-token loss of prefill and decode", "generation"),
    ]


def test_inspect_lists_the_plan_for_answers_alone(answers_only: Path) -> None:
    manifest = bespoke("inspect", answers_only, "--format", "json").ok().json["manifest"]
    assert (manifest["methods"], manifest["context_length"]) == ([], 40)
    assert any(
        line.split()[:2] == ["generation", "32"] for line in bespoke("inspect", answers_only).ok().out.splitlines()
    )


@pytest.mark.slow
def test_a_toml_file_may_ask_for_no_method(tmp_path: Path) -> None:
    tiny_model("llama", tmp_path / "model", num_hidden_layers=1)
    (tmp_path / "bespoke.toml").write_text(
        'model = "model"\noptimizers = []\ncontext = 32\n[training]\nsequence_lengths = [16]\n'
    )
    asked = (
        "--config",
        tmp_path / "bespoke.toml",
        "--licence",
        "MIT",
        "--data",
        "none",
        "--dry-run",
        "--format",
        "json",
    )
    plans = bespoke("build", *asked).ok().json["plans"]
    assert [(plan["method"], plan["sequence_length"]) for plan in plans] == [("generation", 32)]


@pytest.mark.slow
def test_the_dry_run_of_a_bundle_that_only_answers_needs_no_method(tmp_path: Path) -> None:
    tiny_model("llama", tmp_path, num_hidden_layers=1)
    found = Personalizer(
        tmp_path, [], lora=Lora(rank=2), training=Training(sequence_lengths=(8,)), context=16
    ).estimate()
    assert [plan.method for plan in found.plans] == ["generation"]
    assert found.peak_bytes == found.plans[0].estimate.peak_bytes


def test_a_bundle_of_before_opens_and_trains_but_has_to_be_built_again_to_answer(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(tiny_bundle, old)
    document = json.loads((old / "manifest.json").read_bytes())
    document["format_version"]["minor"] = 1
    record = document.pop("generation")
    (old / record["file"]).unlink()
    del document["files"][record["file"]]
    drop_later_fields(document)
    rewrite_manifest(old, document)
    with PersonalModel.open(old, tmp_path / "state") as model:
        for number in range(6):
            model.examples.add(numbers(number))
        assert model.train(run_steps=1).steps == 1
        with pytest.raises(GenerationError, match="Build it again"):
            list(model.generate_ids([1]))
