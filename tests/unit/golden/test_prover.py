# SPDX-License-Identifier: Apache-2.0
"""A bundle proves itself on this machine, and a change that its hashes do not show is found and named."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.bundle.reader import read_bundle
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.data.tokenizer_from_file import read_tokenizer_file
from bespoke.errors import BespokeError, BundleError, GoldenMismatch, PlanError
from bespoke.golden.prover import verify_bundle
from bespoke.rules.verification import VerifyReport
from tests.support.bundles import drop_fields_of_1_7
from tests.support.checks import few_rows_of
from tests.unit.golden.bundles import LENGTH, build, changed, document, rewrite_manifest, tensors

PLAN = f"plans/mebp-{LENGTH}.json"
ANSWERS = "plans/generation.json"


def verify(path: Path) -> VerifyReport:
    with read_bundle(path) as bundle:
        return verify_bundle(bundle)


def refused(path: Path) -> BespokeError:
    with pytest.raises(BespokeError) as caught:
        verify(path)
    return caught.value


def test_an_unchanged_bundle_holds(bundle: Path) -> None:
    passed: list[str] = []
    with read_bundle(bundle) as opened:
        report = verify_bundle(opened, on_check=lambda check: passed.append(check.what))
        files = len(opened.names)
    assert report.golden
    assert report.files == files
    assert passed == [check.what for check in report.checks]
    assert all(check.worst < 1 for check in report.checks)
    done = {(check.method, check.what) for check in report.checks}
    for method in ("mebp", "mezo"):
        assert (method, "evaluation loss") in done
        assert {(method, f"loss of step {step}") for step in (1, 2, 3)} <= done
        assert {(method, f"updates after step {step}") for step in (1, 2)} <= done
    assert ("generation", "next-token loss of prefill and decode") in done
    assert ("mebp", "gradients") in done
    assert {("mezo", f"recorded values of step {step}") for step in (1, 2, 3)} <= done
    assert ("mezo", "replay of step 1") in done
    assert json.loads(json.dumps(report.as_dict()))["checks"][0]["what"] == "files"


@pytest.mark.slow
def test_files_may_be_left_out(bundle: Path) -> None:
    with read_bundle(bundle) as opened:
        report = verify_bundle(opened, files=False)
    assert report.files == 0
    assert report.golden


def test_a_bundle_without_golden_vectors_says_so(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "b")
    content = json.loads((tmp_path / "b/manifest.json").read_bytes())
    (tmp_path / "b" / content["golden"]).unlink()
    del content["files"][content["golden"]]
    content["golden"] = None
    rewrite_manifest(tmp_path / "b", content)
    report = verify(tmp_path / "b")
    assert not report.golden
    assert [check.what for check in report.checks] == ["files"]


# ---- what was changed, and which message finds it ----------------------------------------------------------------------


def flip_weight(arrays: dict[str, np.ndarray]) -> None:
    arrays["v_proj.codes"][0, 0] ^= 0x80  # the sign of one code


def flip_exponent(arrays: dict[str, np.ndarray]) -> None:
    arrays["down_proj.scales"].view(np.uint16)[3, 1] ^= 0x0800


def turn_one_angle(arrays: dict[str, np.ndarray]) -> None:
    arrays["cos"][5, 1], arrays["sin"][5, 1] = arrays["sin"][5, 1], arrays["cos"][5, 1]


def double_scales(arrays: dict[str, np.ndarray]) -> None:
    arrays["table.scales"] *= 2


def move_adapter(arrays: dict[str, np.ndarray]) -> None:
    arrays["block_01.k_proj.lora_A"] *= 1.5


@pytest.mark.parametrize(
    ("name", "change"),
    few_rows_of(
        [
            ("weights/block_01.safetensors", flip_weight),
            ("weights/block_00.safetensors", flip_exponent),
            ("weights/rope.safetensors", turn_one_angle),
            ("weights/embedding.safetensors", double_scales),
            ("adapter/initial.safetensors", move_adapter),
        ],
        (0, 4),
    ),
)
def test_other_numbers_are_found_by_the_evaluation(
    bundle: Path, tmp_path: Path, name: str, change: Callable[[dict[str, np.ndarray]], None]
) -> None:
    error = refused(changed(bundle, tmp_path / "b", name, tensors(change)))
    assert isinstance(error, GoldenMismatch)
    assert error.subject == f"Method 'mebp' at sequence length {LENGTH}, evaluation loss"
    assert re.fullmatch(r"\d+\.\d+ within \S+", error.expected)
    assert error.got.split()[0] != error.expected.split()[0]
    assert "Build the bundle again" in error.next_step


def of_1_5(bundle: Path, into: Path) -> Path:
    """The same bundle with a tokenizer.json beside tokenizer.bin, as all had it before format 1.6."""
    shutil.copytree(bundle, into)
    files = Tokenizer.open(bundle.parent / "model").files()
    content = json.loads((into / "manifest.json").read_bytes())
    content["format_version"]["minor"] = 5
    drop_fields_of_1_7(content)
    for field, (name, data) in zip(("tokenizer", "tokenizer_config"), files.items(), strict=True):
        (into / "text" / name).write_bytes(data)
        content["text"][field] = f"text/{name}"
        content["files"][f"text/{name}"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    rewrite_manifest(into, content)
    return into


def drop_merge(content: dict[str, Any]) -> None:
    content["model"]["merges"].pop(3)


def drop_merge_of_file(path: Path) -> None:
    content = json.loads(read_tokenizer_file(path.read_bytes()).files()["tokenizer.json"])
    drop_merge(content)
    path.write_bytes(write_tokenizer_file(Tokenizer.from_bytes(json.dumps(content).encode())))


@pytest.mark.parametrize("minor", [5, 6])
def test_another_tokenizer_is_found_by_its_texts(bundle: Path, tmp_path: Path, minor: int) -> None:
    if minor == 5:
        old = of_1_5(bundle, tmp_path / "a")
        assert [check.compared for check in verify(old).checks if check.what == "texts"] == [500]
        error = refused(changed(old, tmp_path / "b", "text/tokenizer.json", document(drop_merge)))
    else:
        error = refused(changed(bundle, tmp_path / "b", "text/tokenizer.bin", drop_merge_of_file))
    assert isinstance(error, GoldenMismatch)
    assert error.subject.startswith("Golden text ")
    assert "tokens" in error.got
    assert "tokens" in error.expected


def drop(plan: dict[str, Any], section: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    code = plan["sections"][section]
    position = next(i for i, instruction in enumerate(code) if wanted(instruction))
    return code.pop(position)


def test_a_dropped_store_is_found_by_its_piece(bundle: Path, tmp_path: Path) -> None:
    stored: list[str] = []

    def change(plan: dict[str, Any]) -> None:
        lost = drop(plan, "train_step", lambda i: i["op"] == "store")
        stored.append(plan["values"][lost["state"]]["place"]["name"])

    error = refused(changed(bundle, tmp_path / "b", PLAN, document(change)))
    assert isinstance(error, GoldenMismatch)
    assert error.subject == f"Method 'mebp' at sequence length {LENGTH}, gradient of {stored[0]}"
    assert "norm 0," in error.got


@pytest.mark.parametrize(
    ("plan", "section", "found"),
    few_rows_of([(PLAN, "evaluate_step", "evaluation loss"), (ANSWERS, "prefill", "next-token loss")], (1,)),
)
def test_a_dropped_addition_is_found_by_its_section(
    bundle: Path, tmp_path: Path, plan: str, section: str, found: str
) -> None:
    def change(content: dict[str, Any]) -> None:
        drop(content, section, lambda i: i["op"] == "call" and all(r["how"] == "add_to" for r in i["results"]))

    error = refused(changed(bundle, tmp_path / "b", plan, document(change)))
    assert isinstance(error, GoldenMismatch)
    assert found in error.subject


def test_a_dropped_call_is_found_before_anything_runs(bundle: Path, tmp_path: Path) -> None:
    def change(plan: dict[str, Any]) -> None:
        drop(plan, "train_step", lambda i: i["op"] == "call")

    assert isinstance(refused(changed(bundle, tmp_path / "b", PLAN, document(change))), PlanError)


def test_other_noise_is_found_by_what_is_recorded(bundle: Path, tmp_path: Path) -> None:
    def change(plan: dict[str, Any]) -> None:
        for instruction in plan["sections"]["train_step"]:
            if instruction["op"] == "noise" and instruction["query"] == 1:
                instruction["query"] = 7

    error = refused(changed(bundle, tmp_path / "b", f"plans/mezo-{LENGTH}.json", document(change)))
    assert isinstance(error, GoldenMismatch)
    assert error.subject.endswith("recorded values of step 1, value 2")


def test_another_learning_rate_is_found_by_the_schedule(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "b")
    content = json.loads((tmp_path / "b/manifest.json").read_bytes())
    content["methods"][0]["training"]["learning_rate"] = 0.011
    rewrite_manifest(tmp_path / "b", content)
    assert "learning rates" in refused(tmp_path / "b").subject


# ---- a golden file that is not one -------------------------------------------------------------------------------------


def other_version(arrays: dict[str, np.ndarray]) -> None:
    content = json.loads(arrays["document"].tobytes())
    arrays["document"] = np.frombuffer(json.dumps(content | {"version": 2}).encode(), np.uint8)


def without_tokens(arrays: dict[str, np.ndarray]) -> None:
    del arrays["tokens"]


def beyond_the_vocabulary(arrays: dict[str, np.ndarray]) -> None:
    arrays["tokens"][0, 1] = 10**6


def without_a_gradient(arrays: dict[str, np.ndarray]) -> None:
    del arrays["gradient.block_01.o_proj.lora_B"]


def shorter_gradient(arrays: dict[str, np.ndarray]) -> None:
    arrays["gradient.block_01.o_proj.lora_B"] = arrays["gradient.block_01.o_proj.lora_B"][:-1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_version, "version 2"),
        (without_tokens, "'tokens'"),
        (beyond_the_vocabulary, "1000000"),
        (without_a_gradient, "o_proj.lora_B"),
        (shorter_gradient, "o_proj.lora_B"),
    ],
)
def test_a_damaged_golden_file_is_refused(
    bundle: Path, tmp_path: Path, change: Callable[[dict[str, np.ndarray]], None], named: str
) -> None:
    error = refused(changed(bundle, tmp_path / "b", "golden/golden.safetensors", tensors(change)))
    assert type(error) is BundleError
    assert named in str(error)


# ---- families, update rules and ways to find a gradient ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "optimizers", "training"),
    [
        ("llama", {"mesp": {}}, {"sequence_lengths": (1, 7, 33)}),
        ("llama3", {"mebp": {"weight_decay": 0.1}}, {"schedule": "linear", "sequence_lengths": (16, 24)}),
        ("qwen2", {"mesp": {"update": "sgd"}}, {"accumulation": 3, "clip_norm": 0.5}),
        ("qwen3", {"mebp": {}}, {"accumulation": 2, "batch_size": 1}),
        ("gemma3_text", {"mesp": {}, "mezo": {"queries": 5, "distribution": "rademacher"}}, {"clip_norm": None}),
    ],
)
def test_every_family_holds(tmp_path: Path, family: str, optimizers: Any, training: dict[str, Any]) -> None:
    report = verify(build(tmp_path, family, optimizers, **training))
    assert {check.method for check in report.checks if check.what == "gradients"} == set(optimizers) - {"mezo"}
    assert all(check.worst < 1 for check in report.checks)


@pytest.mark.slow
def test_a_dropped_store_of_an_adamw_step_is_found_by_its_update(tmp_path: Path) -> None:
    built = build(tmp_path, "qwen2", {"mebp": {}})
    stored: list[str] = []

    def change(plan: dict[str, Any]) -> None:
        lost = drop(
            plan, "train_step", lambda i: i["op"] == "store" and plan["values"][i["state"]]["role"] == "adapter"
        )
        stored.append(plan["values"][lost["state"]]["place"]["name"])

    error = refused(changed(built, tmp_path / "b", PLAN, document(change)))
    assert isinstance(error, GoldenMismatch)
    assert error.subject == f"Method 'mebp' at sequence length {LENGTH}, {stored[0]} after step 1"
    assert "a distance of 0 " in error.got
