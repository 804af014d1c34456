# SPDX-License-Identifier: Apache-2.0
"""build, inspect, verify: on a bundle that the command line itself has built."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from bespoke.bundle.reader import read_bundle
from tests.support.models import tiny_model
from tests.unit.cli.commands import bespoke
from tests.unit.cli.conftest import Built

pytestmark = pytest.mark.xdist_group("cli")


def test_build_makes_the_bundle_that_file_and_flags_ask_for_and_flags_win(built: Built) -> None:
    built.answer.ok()
    from bespoke.bundle.reader import read_bundle

    with read_bundle(built.bundle) as bundle:
        manifest = bundle.manifest
    (method,) = manifest.methods
    assert (method.name, manifest.lora.rank, manifest.sequence_lengths) == ("mesp", 4, (32,))  # 4 and 32 are flags
    assert (method.training.steps, method.training.batch_size, method.training.learning_rate) == (
        6,
        2,
        3e-3,
    )  # the file's
    assert (method.options["beta1"], method.options["update"]) == (
        0.8,
        "adamw",
    )  # --option and the file's table together
    assert [target.name for target in manifest.targets] == ["torch"]  # in neither: Personalizer's default


def test_build_reports_what_became_of_the_data(built: Built) -> None:
    report = built.answer.ok().json
    assert report["bundle"] == str(built.bundle)
    assert report["bytes"] == sum(file.stat().st_size for file in built.bundle.rglob("*") if file.is_file())
    assert (report["data"]["rows"], report["data"]["format"]) == (10, "text")
    assert report["data"]["unknown_keys"] == {"source": 10}


def test_build_packs_the_bundle_for_transport(built: Built) -> None:
    with read_bundle(built.zips) as packed, read_bundle(built.bundle) as folder:
        assert packed.manifest == folder.manifest
        assert packed.verify_files() == len(folder.names)


@pytest.mark.slow
def test_a_dry_run_estimates_every_plan_and_writes_nothing(tmp_path: Path) -> None:
    model = tiny_model("llama", tmp_path / "model", num_hidden_layers=1)
    flags = ("--model", model, "--optimizers", "mezo", "--sequence-lengths", "8", "--rank", "2", "--dry-run")
    answer = bespoke("build", tmp_path / "out", *flags, "--format", "json").ok()
    assert [(p["method"], p["sequence_length"]) for p in answer.json["plans"]] == [("mezo", 8), ("generation", 128)]
    assert answer.json["peak_bytes"] == max(plan["estimate"]["peak_bytes"] for plan in answer.json["plans"])
    assert list(tmp_path.iterdir()) == [model]


def test_inspect_says_what_the_manifest_says(built: Built) -> None:
    answer = bespoke("inspect", built.bundle, "--format", "json").ok()
    manifest = (built.bundle / "manifest.json").read_bytes()
    assert answer.json["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
    assert answer.json["manifest"]["model"]["licence"] == "MIT"
    assert answer.json["signed"] is True
    text = bespoke("inspect", built.bundle).ok().out
    assert "stories260K" in text
    assert "token ids only" not in text
    assert any(line.split()[:2] == ["mesp", "32"] for line in text.splitlines())
    assert any(line.split()[:2] == ["generation", "128"] for line in text.splitlines())


def test_inspect_draws_a_plan(built: Built, tmp_path: Path) -> None:
    bespoke("inspect", built.bundle, "--plot", tmp_path / "memory.svg").ok()
    svg = (tmp_path / "memory.svg").read_text()
    assert all(words in svg for words in ("train_step", "evaluate_step", "estimate"))
    bespoke("inspect", built.bundle, "--method", "generation", "--plot", tmp_path / "answers.svg").ok()
    svg = (tmp_path / "answers.svg").read_text()
    assert all(words in svg for words in ("prefill", "decode", "KV cache", "estimate"))


@pytest.mark.parametrize(
    ("flags", "subject", "expected"),
    [
        (("--method", "mebp", "--plot", "p.svg"), "--method mebp", "one of mesp, generation"),
        (("--sequence-length", "7", "--plot", "p.svg"), "--sequence-length 7", "one of 32"),
        (("--plot", "p.jpeg"), "plot p.jpeg", ".svg or .png"),
        (("--plot", "nowhere/p.svg"), "plot nowhere/p.svg", "an existing folder"),
    ],
)
def test_inspect_refuses_what_it_cannot_draw(built: Built, flags: tuple[str, ...], subject: str, expected: str) -> None:
    error = bespoke("inspect", built.bundle, *flags, "--format", "json").json["error"]
    assert (error["kind"], error["subject"], error["expected"], error["exit_code"]) == (
        "ConfigError",
        subject,
        expected,
        2,
    )


def test_verify_counts_what_it_has_checked(built: Built) -> None:
    answer = bespoke("verify", built.bundle, "--files-only", "--format", "json").ok()
    assert answer.json["plans"] == 2  # to train and to answer
    listed = bespoke("inspect", built.bundle, "--format", "json").json["manifest"]["files"]
    assert answer.json["files"] == len(listed)


def test_verify_lets_the_machine_prove_itself(built: Built) -> None:
    from bespoke.bundle.reader import read_bundle

    with read_bundle(built.bundle) as bundle:
        golden = bundle.manifest.golden
    checks = bespoke("verify", built.bundle, "--format", "json").ok().json["golden"]
    assert (checks is not None) == (golden is not None)
    if golden is not None:
        assert {"texts", "gradients", "evaluation loss"} <= {check["what"] for check in checks}
        assert all(check["compared"] > 0 and 0 <= check["worst"] <= 1 for check in checks)


def test_verify_names_a_file_with_one_bit_changed(built: Built, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bundle"
    shutil.copytree(built.bundle, copy)
    file = copy / "weights" / "block_00.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    answer = bespoke("verify", copy, "--files-only", "--format", "json")
    assert answer.code == answer.json["error"]["exit_code"] == 8
    assert "weights/block_00.safetensors" in answer.json["error"]["subject"]
    assert "block_00" in answer.err


def test_a_pin_must_hold_and_the_key_must_have_signed(built: Built, tmp_path: Path) -> None:
    from bespoke.bundle.signature import generate_key

    right = hashlib.sha256((built.bundle / "manifest.json").read_bytes()).hexdigest()
    assert bespoke("inspect", built.bundle, "--pin-sha256", right).code == 0
    assert bespoke("inspect", built.bundle, "--pin-sha256", "0" * 64).code == 8
    raw, another = tmp_path / "raw.pub", tmp_path / "another.pub"
    raw.write_bytes(bytes.fromhex(built.public_key.read_text()))
    another.write_bytes(generate_key()[1])
    for key in (built.public_key, raw):
        answer = bespoke("verify", built.bundle, "--files-only", "--public-key", key, "--format", "json").ok()
        assert answer.json["signed"]
        assert answer.json["signature_checked"]
    assert bespoke("verify", built.bundle, "--files-only", "--public-key", another).code == 8
