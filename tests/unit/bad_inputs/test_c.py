# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  a row of the table is one line
"""Bad arguments through bespoke.h and the error that each gets. Each row: the call, the kind of the error, what it says.

Calls are those of c_lab.py: `opened` is bespoke_open, `train` bespoke_train on a model that is open, and so on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bespoke.core import find
from tests.support.checks import REPOSITORY
from tests.support.statuses import STATUS
from tests.unit.bad_inputs.conftest import Place

NEWER = "Set struct_size to sizeof, and use a library that is as new as the header."

ROWS = [
    (
        "opened(b'/nosuch', state)",
        "BundleError",
        "/nosuch: got No such file or directory; expected a bundle. Get the bundle again from where it was built.",
    ),
    (
        "opened(bundle, b'/etc/passwd')",
        "StateError",
        "/etc/passwd: got ...; expected a folder of its own that this process may read and write. Check that the path is a writable folder on a local disk.",
    ),
    (
        "opened(bundle, state, pin_sha256=b'0' * 64)",
        "SignatureError",
        "{bundle}: manifest.json: got sha256 ...; expected the pinned 0000... Get the bundle that the app was built with.",
    ),
    (
        "opened(bundle, state, public_key=b'1' * 32)",
        "SignatureError",
        "{bundle}: signature: got no signature; expected a signature: the app asks for one. Get the bundle and its key from the one who built it.",
    ),
    (
        "called('bespoke_open', None, text(state), None, None, c.byref(c.c_void_p()))",
        "ConfigError",
        "bundle: got null; expected where the bundle is. Give one.",
    ),
    (
        "opened(None, state)",
        "ConfigError",
        "bespoke_bundle: got neither a path nor a range of a file; expected one of both. Give one.",
    ),
    (
        "opened(None, state, place={'descriptor': 9999, 'size': 100})",
        "BundleError",
        "the bundle at byte 0 of a file: got Bad file descriptor; expected a file that can be read. Get the bundle again from where it was built.",
    ),
    (
        "opened(None, state, place={'descriptor': 0, 'size': 100})",
        "BundleError",
        "the bundle at byte 0 of a file: got no regular file; expected a zip. Get the bundle again from where it was built.",
    ),
    (
        "opened(b'\\xff', state)",
        "ConfigError",
        "bespoke_bundle.path: got '\\xff'; expected UTF-8 without NUL. Correct the text.",
    ),
    (
        "opened(b'a\\0b', state)",
        "ConfigError",
        "bespoke_bundle.path: got 'a\\x00b'; expected UTF-8 without NUL. Correct the text.",
    ),
    (
        "opened(b'file://' + bundle, state)",
        "ConfigError",
        "bespoke_bundle.path: got a URL, 'file:///...; expected a path. Give the path in it, without the scheme.",
    ),
    (
        "opened(bundle, b'file:///nosuch/alice')",
        "ConfigError",
        "state: got a URL, 'file:///nosuch/alice'; expected a path. Give the path in it, without the scheme.",
    ),
    (
        "called('bespoke_export_adapter', model, text(b'file:///nosuch'), text(b'peft'), 1, None)",
        "ConfigError",
        "folder: got a URL, 'file:///nosuch'; expected a path. Give the path in it, without the scheme.",
    ),
    (
        "opened(bundle, None)",
        "ConfigError",
        "state: got an empty text; expected the path of the user's folder. Give one.",
    ),
    (
        "opened(bundle, state, memory_mb=float('nan'))",
        "ConfigError",
        "memory_mb: got nan; expected a number of at most 1e12. Give 0 for the bundle's budget, less for none.",
    ),
    (
        "opened(bundle, state, memory_mb=float('inf'))",
        "ConfigError",
        "memory_mb: got inf; expected a number of at most 1e12. Give 0 for the bundle's budget, less for none.",
    ),
    (
        "opened(bundle, state, threads=-3)",
        "ConfigError",
        "threads: got -3; expected 0 or more. Give 0 for as many as suit the processor.",
    ),
    (
        "called('bespoke_train', None, None, None, c.byref(report))",
        "ConfigError",
        "model: got null; expected one that bespoke_open gave. Give one.",
    ),
    (
        "called('bespoke_verify', None, None, c.byref(report))",
        "ConfigError",
        "model: got null; expected one that bespoke_open gave. Give one.",
    ),
    (
        "evaluate(None)",
        "ConfigError",
        "split: got ''; expected 'train', 'validation' or 'behaviour'. Name one of these.",
    ),
    (
        "changed('limit', float('nan'))",
        "ConfigError",
        "memory_mb: got nan; expected a number of at most 1e12. Give 0 for the bundle's budget, less for none.",
    ),
    ("changed('pace', 0)", "ConfigError", "pace: got 0.0; expected more than 0 and at most 1. Change the share."),
    (
        "changed('pace', float('nan'))",
        "ConfigError",
        "pace: got nan; expected more than 0 and at most 1. Change the share.",
    ),
    (
        "train(call={'deadline_seconds': -1})",
        "ConfigError",
        "deadline_seconds: got -1.0; expected 0 for none, or more. Change the deadline.",
    ),
    (
        "train(call={'deadline_seconds': float('nan')})",
        "ConfigError",
        "deadline_seconds: got nan; expected 0 for none, or more. Change the deadline.",
    ),
    ("train(call={'struct_size': 8})", "ConfigError", f"bespoke_call: got struct_size 8; expected ... {NEWER}"),
    ("train(has_seed=1, seed=-1)", "ConfigError", "train.seed: got -1; expected 0 or more. Change seed."),
    (
        "opened(bundle, state, struct_size=3)",
        "ConfigError",
        f"bespoke_options: got struct_size 3; expected ... {NEWER}",
    ),
    ("train(struct_size=3)", "ConfigError", f"bespoke_training: got struct_size 3; expected ... {NEWER}"),
    (
        "train(run_steps=-3)",
        "ConfigError",
        "train.run_steps: got -3; expected 1 to 10000000, or 0 for as many as the bundle's settings say. Change run_steps.",
    ),
    (
        "train(most_steps=10_000_001)",
        "ConfigError",
        "train.most_steps: got 10000001; expected 1 to 10000000, or 0 for all that the run has left. Change most_steps.",
    ),
    ("train(method=b'mexp')", "ConfigError", "method: got 'mexp'; expected one of mesp. Name a method of the bundle."),
    (
        "train(settings=b'[1]')",
        "ConfigError",
        "train: got settings that are no JSON object, ...; expected an object of Training fields. Change the settings.",
    ),
    (
        "train(settings=b'{half')",
        "ConfigError",
        "train: got settings that are no JSON object, ...; expected an object of Training fields. Change the settings.",
    ),
    (
        "train(settings=b'{\"learning_rate\": 1e999}')",
        "ConfigError",
        "train: got settings that are no JSON object, ...; expected an object of Training fields. Change the settings.",
    ),
    (
        "train(settings=b'{\"lerning_rate\": 1}')",
        "ConfigError",
        "train.lerning_rate: got 1; expected one of the fields accumulation, ... Remove it or correct its name.",
    ),
    (
        'train(settings=b\'{"learning_rate": "fast"}\')',
        "ConfigError",
        "train.learning_rate: got 'fast'; expected a number. Change train.learning_rate.",
    ),
    (
        "train(settings=b'{\"learning_rate\": -1.0}')",
        "ConfigError",
        "train.learning_rate: got -1.0; expected more than 0. Change train.learning_rate.",
    ),
    (
        "train(settings=b'{\"steps\": 99999999999999999999}')",
        "ConfigError",
        "train.steps: got 1e+20; expected run_steps, the length of a new run, or most_steps, the most steps of this call. Give one of the two.",
    ),
    (
        'train(settings=b\'{"schedule": "steep"}\')',
        "ConfigError",
        "train.schedule: got 'steep'; expected one of 'constant', 'linear', 'cosine'. Change train.schedule.",
    ),
    (
        "train(settings=b'{\"batch_size\": 7}')",
        "ConfigError",
        "train.batch_size: got 7; expected 2, which the bundle was built for. Build a bundle with the other value.",
    ),
    (
        "train(run_steps=1)",
        "BundleError",
        "target 'executorch': got a bundle for torch; expected a bundle for the engine that runs it. Build the bundle with targets='executorch'.",
    ),
    (
        "called('bespoke_add_example', model, None, None, c.byref(report))",
        "ConfigError",
        "example: got null; expected one to add. Give one.",
    ),
    (
        "add(b'{\"tokens\": [1, 2, 3]}', struct_size=8)",
        "ConfigError",
        f"bespoke_example: got struct_size 8; expected ... {NEWER}",
    ),
    (
        "add(b'{\"tokens\": [1, 2, 3]}', use=b'test')",
        "ConfigError",
        "bespoke_example.use: got 'test'; expected 'train', or an empty text. Leave it out.",
    ),
    (
        'add(b\'{"text": "\\xff"}\')',
        "ConfigError",
        'bespoke_example.json: got \'{"text": ...; expected UTF-8 without NUL. Correct the text.',
    ),
    ('add(b\'{"text": "\\\\ud800"}\')', "DataError", "example: got half of a surrogate pair; ..."),
    (
        "called('bespoke_forget_example', model, text(b'x' * 300), None, c.byref(report))",
        "DataError",
        "id of an example: got 300 characters; expected text of 1 to 256 characters. Use another id, or none.",
    ),
    (
        "called('bespoke_export_adapter', model, text(b'/nosuch/adapter'), text(b'onnx'), 0, None)",
        "ConfigError",
        "format: got 'onnx'; expected 'peft', 'mlx' or 'gguf'. Name one of these.",
    ),
    (
        "called('bespoke_export_adapter', model, text(None), text(b'peft'), 0, None)",
        "ConfigError",
        "folder: got an empty text; expected the path of an adapter's folder. Give one.",
    ),
    (
        "called('bespoke_import_adapter', model, text(b'/nosuch'), 0, None, None)",
        "AdapterError",
        "/nosuch/adapter_config.json: got No such file or directory; ...",
    ),
    (
        "called('bespoke_reset_for_new_base', made(Bundle, path=bundle), text(None), None, None)",
        "ConfigError",
        "state: got an empty text; expected the path of the user's folder. Give one.",
    ),
    (
        "evaluate(b'test')",
        "ConfigError",
        "split: got 'test'; expected 'train', 'validation' or 'behaviour'. Name one of these.",
    ),
]


@pytest.fixture(scope="module")
def answers(stories_bundle: Path, state: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each row's call was answered. The process that makes them must end by itself."""
    core = find().path
    if core is None:
        pytest.skip("the device core is not installed")
    program = [sys.executable, Path(__file__).with_name("c_lab.py"), core.parent.parent / "lib" / "libbespoke_core.so"]
    calls = "".join(row[0] + "\n" for row in ROWS)
    own = shutil.copytree(state, tmp_path_factory.mktemp("c") / "state")
    done = subprocess.run(
        [*program, stories_bundle, own],
        input=calls,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row[0] for row in ROWS])
def test_the_error_says_what_is_wrong_with_a_call(number: int, answers: list[dict[str, Any]], place: Place) -> None:
    _, kind, says = ROWS[number]
    answer = answers[number]
    assert answer["kind"] == kind
    assert answer["status"] == answer["of_error"] == STATUS[kind]
    said = "{subject}: got {got}; expected {expected}. {next_step}.".format(**answer)
    assert place.holds(says, said), said
