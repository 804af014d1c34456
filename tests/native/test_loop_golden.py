# SPDX-License-Identifier: Apache-2.0
"""The core proves bundles as the torch runtime does: the same checks, the same names for what was changed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, Training
from bespoke.bundle.reader import read_bundle
from bespoke.errors import BespokeError, PlanError
from bespoke.golden.prover import verify_bundle
from tests.native.golden_edits import edited
from tests.support.bundles import drop_later_fields
from tests.support.models import tiny_model
from tests.unit.golden.bundles import changed, document, rewrite_manifest, tensors

pytestmark = pytest.mark.slow  # a bundle of its own; the fast tests verify theirs in test_parity.py

LENGTHS = (12, 16)
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "mebp": {"update": "sgd", "learning_rate": 0.01},
    "mesp": {"learning_rate": 0.01, "accumulation": 2, "clip_norm": 0.5},
    "mezo": {"queries": 2, "learning_rate": 1e-4, "distribution": "rademacher"},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gradient by difference (SGD), one by accumulator, and a zeroth-order method with a journal."""
    folder = tmp_path_factory.mktemp("core_golden")
    # Few different shapes, and widths that leave the planner nothing to choose.
    model = tiny_model(
        "llama", folder / "model", num_hidden_layers=2, hidden_size=32, intermediate_size=32, num_attention_heads=4
    )
    training = Training(sequence_lengths=LENGTHS, batch_size=2, steps=20, schedule="cosine", warmup_steps=2)
    lora = Lora(rank=3, alpha=6.0)
    answers = {"draft_tokens": 2, "data": None}
    Personalizer(model, OPTIMIZERS, "executorch", lora=lora, training=training, **answers).build(folder / "bundle")
    return folder / "bundle"


def verify(build: Path, bundle: Path, state: Path) -> dict[str, Any]:
    request = json.dumps({"verb": "verify", "bundle": str(bundle), "state": str(state)})
    done = subprocess.run([build / "bespoke-core"], input=request, capture_output=True, text=True, check=False)
    event: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (event["event"] == "report") == (done.returncode == 0), done
    return event["report"] if event["event"] == "report" else event


def same_error(build: Path, bundle: Path, state: Path) -> None:
    with pytest.raises(BespokeError) as caught, read_bundle(bundle) as opened:
        verify_bundle(opened)
    got = verify(build, bundle, state)
    assert (got["kind"], got["subject"]) == (type(caught.value).__name__, caught.value.subject)


def test_the_core_makes_the_checks_of_the_torch_runtime(native_build: Path, bundle: Path, tmp_path: Path) -> None:
    with read_bundle(bundle) as opened:
        expected = verify_bundle(opened)
    report = verify(native_build, bundle, tmp_path / "state")
    assert report["golden"]
    assert report["files"] == expected.files
    named = [
        (check["what"], check["method"], check["sequence_length"], check["compared"]) for check in report["checks"]
    ]
    assert named == [(check.what, check.method, check.sequence_length, check.compared) for check in expected.checks]
    assert all(check["worst"] < 1 for check in report["checks"])


def test_a_bundle_without_golden_vectors_says_so(native_build: Path, bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "b")
    content = json.loads((tmp_path / "b/manifest.json").read_bytes())
    (tmp_path / "b" / content["golden"]).unlink()
    del content["files"][content["golden"]]
    content["golden"] = None
    rewrite_manifest(tmp_path / "b", content)
    report = verify(native_build, tmp_path / "b", tmp_path / "state")
    assert not report["golden"]
    assert [check["what"] for check in report["checks"]] == ["files"]


def test_a_rate_at_which_the_losses_grow_is_proven_too(native_build: Path, stories: Path, tmp_path: Path) -> None:
    """MeZO's second loss then rests on an estimate whose last digits depend on the processor."""
    training = Training(learning_rate=3e-3, sequence_lengths=(16,), batch_size=2, seed=1)
    bundle = tmp_path / "bundle"
    Personalizer(stories, "mezo", "executorch", lora=Lora(rank=4), training=training, data=None).build(bundle)
    checks = verify(native_build, bundle, tmp_path / "state")["checks"]
    assert max(check["worst"] for check in checks) < 0.5


def flip_weight(arrays: dict[str, np.ndarray]) -> None:
    arrays["v_proj.codes"][0, 0] ^= 0x80  # the sign of one code


def turn_one_angle(arrays: dict[str, np.ndarray]) -> None:
    arrays["cos"][5, 1], arrays["sin"][5, 1] = arrays["sin"][5, 1], arrays["cos"][5, 1]


def move_adapter(arrays: dict[str, np.ndarray]) -> None:
    arrays["block_01.k_proj.lora_A"] *= 1.5


def other_gradient(arrays: dict[str, np.ndarray]) -> None:
    arrays["gradient.block_01.o_proj.lora_B"][0] += 1


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights/block_01.safetensors", flip_weight),
        ("weights/rope.safetensors", turn_one_angle),
        ("adapter/initial.safetensors", move_adapter),
        ("golden/golden.safetensors", other_gradient),
    ],
)
def test_other_numbers_are_found_where_the_torch_runtime_finds_them(
    native_build: Path, bundle: Path, tmp_path: Path, name: str, change: Callable[[dict[str, np.ndarray]], None]
) -> None:
    same_error(native_build, changed(bundle, tmp_path / "b", name, tensors(change)), tmp_path / "state")


def drop_store(plan: dict[str, Any]) -> None:
    code = plan["sections"]["train_step"]
    code.pop(next(i for i, instruction in enumerate(code) if instruction["op"] == "store"))


def drop_addition(plan: dict[str, Any], section: str = "decode") -> None:
    code = plan["sections"][section]
    code.pop(
        next(
            i for i, one in enumerate(code) if one["op"] == "call" and all(r["how"] == "add_to" for r in one["results"])
        )
    )


def other_noise(plan: dict[str, Any]) -> None:
    for instruction in plan["sections"]["train_step"]:
        if instruction["op"] == "noise" and instruction["query"] == 1:
            instruction["query"] = 7


@pytest.mark.parametrize(
    ("plan", "change"),
    [
        (f"mebp-{LENGTHS[0]}", drop_store),
        ("generation", drop_addition),
        ("generation", lambda plan: drop_addition(plan, "decode_rows")),
        (f"mezo-{LENGTHS[0]}", other_noise),
    ],
)
def test_another_plan_is_found_where_the_torch_runtime_finds_it(
    native_build: Path, bundle: Path, tmp_path: Path, plan: str, change: Callable[[dict[str, Any]], None]
) -> None:
    path = f"plans/{plan}.json"
    same_error(native_build, changed(bundle, tmp_path / "b", path, document(change)), tmp_path / "state")


def also_answers(plan: dict[str, Any]) -> None:
    plan["sections"]["prefill"] = []


def also_answers_by_rows(plan: dict[str, Any]) -> None:
    """Rows of an answer in a plan of a method: an emit of its logits, and nothing that computes them."""
    plan["values"].append(
        {
            "shape": [4, 2],
            "dtype": "float32",
            "role": "temporary",
            "lifetime": "section",
            "place": {"kind": "arena", "offset": 0},
        }
    )
    made = len(plan["values"]) - 1
    plan["sections"]["decode_rows"] = [
        {"op": "zero", "value": made},
        {"op": "emit", "name": "logits", "source": made},
        {"op": "free", "value": made, "group": None},
    ]


@pytest.mark.parametrize(
    ("plan", "change", "subject"),
    [
        (f"mesp-{LENGTHS[0]}", also_answers, "sections"),
        (f"mesp-{LENGTHS[0]}", also_answers_by_rows, "sections"),
        ("generation", lambda plan: plan["sections"].pop("decode"), "sections"),
        ("generation", lambda plan: plan["sections"].update(micro_step=[], apply_step=[]), "sections"),
        ("generation", lambda plan: plan.update(batch_size=2), "batch_size"),
        ("generation", lambda plan: plan.update(method="mesp"), "method"),
    ],
)
def test_a_plan_that_is_not_run_for_what_it_holds_is_refused_as_by_the_torch_runtime(
    native_build: Path, bundle: Path, tmp_path: Path, plan: str, change: Callable[[dict[str, Any]], None], subject: str
) -> None:
    path = f"plans/{plan}.json"
    doctored = changed(bundle, tmp_path / "b", path, document(change))
    same_error(native_build, doctored, tmp_path / "state")
    with pytest.raises(PlanError) as caught, read_bundle(doctored) as opened:
        verify_bundle(opened)
    assert caught.value.subject == f"{path}: {subject}"


def test_plans_of_methods_may_answer_too_where_the_bundle_has_no_plan_for_that(
    native_build: Path, bundle: Path, tmp_path: Path
) -> None:
    """As those of format 1.1 do."""
    doctored = changed(bundle, tmp_path / "b", f"plans/mesp-{LENGTHS[0]}.json", document(also_answers))
    content = json.loads((doctored / "manifest.json").read_bytes())
    record = content.pop("generation")
    content["format_version"]["minor"] = 1
    del content["files"][record["file"]]
    drop_later_fields(content)
    (doctored / record["file"]).unlink()
    rewrite_manifest(doctored, content)
    with read_bundle(doctored) as opened:
        expected = [check.what for check in verify_bundle(opened).checks]
    assert [check["what"] for check in verify(native_build, doctored, tmp_path / "state")["checks"]] == expected
    assert "next-token loss of prefill and decode" not in expected


def test_another_learning_rate_is_found_by_the_schedule(native_build: Path, bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "b")
    content = json.loads((tmp_path / "b/manifest.json").read_bytes())
    content["methods"][0]["training"]["learning_rate"] = 0.011
    rewrite_manifest(tmp_path / "b", content)
    same_error(native_build, tmp_path / "b", tmp_path / "state")


# ---- a golden file that is not one -------------------------------------------------------------------------------------


def without_tokens(arrays: dict[str, np.ndarray]) -> None:
    del arrays["tokens"]


def beyond_the_vocabulary(arrays: dict[str, np.ndarray]) -> None:
    arrays["tokens"][0, 1] = 10**6


def shorter_gradient(arrays: dict[str, np.ndarray]) -> None:
    arrays["gradient.block_01.o_proj.lora_B"] = arrays["gradient.block_01.o_proj.lora_B"][:-1]


@pytest.mark.parametrize(
    "change",
    [
        without_tokens,
        beyond_the_vocabulary,
        shorter_gradient,
        edited(lambda content: content.update(version=2)),
        edited(lambda content: content.update(surprise=1)),
        edited(lambda content: content.pop("loss")),
        edited(lambda content: content["loss"].update(tolerance=-1)),
        edited(lambda content: content["pieces"].pop()),
        edited(lambda content: content["methods"][0]["trained"].append("nothing.lora_A")),
        edited(lambda content: content["methods"][0]["moved"][0].pop()),
        edited(lambda content: content["methods"][1]["gradient"].update(suffix="")),
        edited(lambda content: content["methods"][1]["gradient"].update(suffix=".of_another")),
        edited(lambda content: content["methods"][0].update(micro_batches=0)),
    ],
)
def test_a_damaged_golden_file_is_refused(
    native_build: Path, bundle: Path, tmp_path: Path, change: Callable[[dict[str, np.ndarray]], None]
) -> None:
    damaged = changed(bundle, tmp_path / "b", "golden/golden.safetensors", tensors(change))
    with pytest.raises(BespokeError) as caught, read_bundle(damaged) as opened:
        verify_bundle(opened)
    assert verify(native_build, damaged, tmp_path / "state")["kind"] == type(caught.value).__name__
