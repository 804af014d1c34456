# SPDX-License-Identifier: Apache-2.0
"""What `--dry-run` says is what `build` makes: the plans to the byte, the bundle no larger; and it refuses what `build` refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.bundles import shakespeare, write_jsonl
from tests.support.models import copy_folder, tiny_model
from tests.unit.cli.commands import bespoke

pytestmark = pytest.mark.xdist_group("estimates")  # no more than one of these builds at a time


def built(folder: Path, *flags: object) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What `--dry-run` said, the manifest that was written, and the bytes of all files."""
    out = folder / "out.bundle"
    estimated = bespoke("build", out, *flags, "--dry-run", "--format", "json").ok().json
    assert not out.exists()
    bespoke("build", out, *flags, "--format", "json").ok()
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return estimated, json.loads((out / "manifest.json").read_bytes()), size


def check(estimated: dict[str, Any], manifest: dict[str, Any], size: int) -> None:
    plans = {(m["name"], p["sequence_length"]): p for m in manifest["methods"] for p in m["plans"]}
    plans["generation", manifest["generation"]["sequence_length"]] = manifest["generation"]
    assert {(p["method"], p["sequence_length"]) for p in estimated["plans"]} == plans.keys()
    for plan in estimated["plans"]:
        written = plans[plan["method"], plan["sequence_length"]]
        assert (plan["estimate"], plan["choices"]) == (written["estimate"], written["choices"])
    assert size <= estimated["bundle_bytes"] <= 1.1 * size
    assert [run["method"] for run in estimated["runs"]] == [method["name"] for method in manifest["methods"]]
    for run, method in zip(estimated["runs"], manifest["methods"], strict=True):
        assert run["steps"] == method["training"]["steps"]
        assert (run["slot_bytes"] == 0) == method["replayable"]
        assert run["slot_bytes"] < run["written_bytes"]


@pytest.mark.slow
def test_of_a_large_vocabulary_and_a_batch_of_three(tmp_path: Path) -> None:
    model = tiny_model("llama", tmp_path / "model", vocab_size=17003, num_hidden_layers=2)
    check(
        *built(
            tmp_path,
            "--model",
            model,
            "--optimizers",
            "mebp",
            "--targets",
            "executorch",
            "--sequence-lengths",
            200,
            "--batch-size",
            3,
        )
    )


@pytest.mark.slow
def test_of_a_model_with_a_tokenizer_and_data_at_two_lengths(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "general.jsonl", shakespeare(data_folder, 400))
    check(
        *built(
            tmp_path,
            "--model",
            stories,
            "--licence",
            "MIT",
            "--optimizers",
            "mesp,mezo",
            "--targets",
            "executorch,torch",
            "--sequence-lengths",
            "32,96",
            "--data",
            data,
            "--option",
            "mesp.update=sgd",
        )
    )


@pytest.mark.slow
def test_the_least_budget_that_a_refusal_names_is_enough_and_the_estimate_still_true(tmp_path: Path) -> None:
    model = tiny_model("qwen2", tmp_path / "model", intermediate_size=512, vocab_size=4001)
    flags = (
        "--model",
        model,
        "--optimizers",
        "mesp",
        "--targets",
        "executorch",
        "--sequence-lengths",
        "120",
        "--memory-mb",
    )
    refused = [bespoke("build", tmp_path / "out", *flags, 1, *dry, "--format", "json") for dry in ((), ("--dry-run",))]
    assert [answer.json["error"]["kind"] for answer in refused] == ["PlanDoesNotFit"] * 2
    assert refused[0].json == refused[1].json
    least = refused[0].json["error"]["next_step"].split("memory-mb ")[-1].split("=")[-1].split(",")[0].strip(")")
    estimated, manifest, size = built(tmp_path, *flags, least)
    check(estimated, manifest, size)
    assert estimated["peak_bytes"] <= float(least) * 1e6


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        (("--sequence-lengths", "600"), "ConfigError", "at most 512"),
        (("--context", "600"), "ConfigError", "at most 512"),
        (("--data", "nosuch.jsonl"), "DataError", "nosuch.jsonl"),
        (("--targets", "refuses"), "PluginError", "refuses"),
        ((), "ConfigError", "licence"),
    ],
)
def test_a_dry_run_refuses_what_build_refuses(
    flags: tuple[str, ...], kind: str, words: str, stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy_folder(stories, tmp_path / "model")
    (model / "LICENSE").unlink()
    monkeypatch.chdir(tmp_path)
    refusals = []
    for dry in ((), ("--dry-run",)):
        licence = ("--licence", "MIT") if flags else ()
        answer = bespoke(
            "build", "out", "--model", model, "--sequence-lengths", "16", *licence, *flags, *dry, "--format", "json"
        )
        refusals.append(answer.json["error"])
    assert refusals[0] == refusals[1]
    assert words in json.dumps(refusals[0])
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_dry_run_refuses_weights_that_build_would_refuse(tmp_path: Path) -> None:
    model = tiny_model("llama", tmp_path / "model", num_hidden_layers=1)
    (model / "model.safetensors").unlink()
    for dry in ((), ("--dry-run",)):
        answer = bespoke(
            "build", tmp_path / "out", "--model", model, "--sequence-lengths", "16", *dry, "--format", "json"
        )
        assert answer.json["error"]["kind"] == "ModelError"
