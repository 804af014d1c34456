# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  a row of the table is one line
"""Bad command lines and the message that each gets. Each row: what was typed, the kind of the error, what is said.

Hints name options and commands, never Python; nothing is raw.
"""

from __future__ import annotations

import shlex

import click
import pytest

import bespoke.cli
from bespoke.errors import BespokeError
from tests.unit.bad_inputs.conftest import Place
from tests.unit.cli.commands import bespoke as run

NO_KEY = "0" * 64
FINITE = "expected a finite number"
STEPS = "expected a whole number from 1 to 10000000"
BUILD = "build {tmp}/out --model m"
TRAIN = "train {bundle} --state {state}"
ANSWER = "generate {bundle} --state {state} hi"

ROWS = [
    # ---- build -----------------------------------------------------------------------------------------------------------------
    (
        "build {tmp}/out",
        "ConfigError",
        "--model: got none; expected a folder or a hub id. Give --model, or model in the TOML file.",
    ),
    (
        "build --model m",
        "ConfigError",
        "OUT: got none; expected a folder to write the bundle to. Name it, or ask for --dry-run.",
    ),
    (
        "build {tmp}/out --model {tmp}/nosuch/model",
        "ModelError",
        "model {tmp}/nosuch/model: got no such folder; expected a folder with config.json and safetensors, a GGUF file, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct. Check the path.",
    ),
    (
        "build {tmp}/out --model {tmp}/folder",
        "ModelError",
        "{tmp}/folder/config.json: got No such file or directory; expected the config.json of a Hugging Face model folder. Give the folder that holds config.json and model.safetensors.",
    ),
    (f"{BUILD} --learning-rate nan", "ConfigError", f"--learning-rate: got nan; {FINITE}. Change --learning-rate."),
    (
        f"{BUILD} --learning-rate 0",
        "ConfigError",
        "--learning-rate: got 0.0; expected more than 0. Change --learning-rate.",
    ),
    (f"{BUILD} --alpha inf", "ConfigError", f"--alpha: got inf; {FINITE}. Change --alpha."),
    (f"{BUILD} --memory-mb inf", "ConfigError", f"--memory-mb: got inf; {FINITE}. Change --memory-mb."),
    (f"{BUILD} --memory-mb -1", "ConfigError", "--memory-mb: got -1.0; expected more than 0. Change --memory-mb."),
    (f"{BUILD} --rank 0", "ConfigError", "--rank: got 0; expected at least 1. Change --rank."),
    (f"{BUILD} --rank eight", "BadParameter", "Invalid value for '--rank': 'eight' is not a valid integer."),
    (
        f"{BUILD} --steps 99999999999999999999",
        "ConfigError",
        "--steps: got 99999999999999999999; expected at most 10000000. Change --steps.",
    ),
    (
        f"{BUILD} --sequence-lengths ''",
        "BadParameter",
        "Invalid value for '--sequence-lengths': '' is not a list of numbers such as 64,128",
    ),
    (
        f"{BUILD} --optimizers executorch",
        "ConfigError",
        "optimizer 'executorch': got no plugin of that name; expected one of the installed optimizers: fzoo, hizoo, mebp, mesp, mezo...Install the package that provides the optimizer 'executorch'.",
    ),
    (
        f"{BUILD} --optimizers mexp",
        "ConfigError",
        "optimizer 'mexp': got no plugin of that name; expected one of the installed optimizers: fzoo, hizoo, mebp, mesp, mezo... Did you mean 'mesp'?",
    ),
    (
        f"{BUILD} --targets openvino",
        "ConfigError",
        "target 'openvino': got no plugin of that name; expected one of the installed targets: coreml, cuda... Install the package that provides the target 'openvino'.",
    ),
    (f"{BUILD} --option nope", "ConfigError", "--option: got 'nope'; expected NAME=VALUE. Write --option name=value."),
    (
        f"{BUILD} --signing-key {{tmp}}/nosuch.pem",
        "ConfigError",
        "signing key {tmp}/nosuch.pem: got No such file or directory; expected a file. Check the path.",
    ),
    (
        "build {tmp}/out --config {tmp}/nosuch.toml",
        "ConfigError",
        "{tmp}/nosuch.toml: got No such file or directory; expected a readable TOML file. Check --config.",
    ),
    (
        "build {tmp}/out --config {tmp}/half.toml",
        "ConfigError",
        "{tmp}/half.toml: got no TOML: Invalid value (at end of document); expected TOML. Correct the file.",
    ),
    (
        "build {tmp}/out --config {tmp}/name.toml",
        "ConfigError",
        "{tmp}/name.toml: modell: got an unknown setting; expected one of model, tokenizer, optimizers, targets, context, draft_tokens, data... Did you mean 'model'?",
    ),
    (
        "build {tmp}/out --config {tmp}/list.toml",
        "ConfigError",
        'optimizers or targets: got [true, "mesp"]; expected a name, a list of names, or a table of options for each. ...',
    ),
    (
        "build {tmp}/out --config {tmp}/table.toml",
        "ConfigError",
        '{tmp}/table.toml: lora: got [8, "all"]; expected a table. Write [lora] and its fields.',
    ),
    (
        "build {tmp}/out --config {tmp}/true.toml",
        "ConfigError",
        "training.steps: got true; expected a whole number. Change training.steps.",
    ),
    (
        "build {tmp}/out --config {tmp}/word.toml",
        "ConfigError",
        "training.learning_rate: got 'fast'; expected a number. Change training.learning_rate.",
    ),
    # ---- a bundle --------------------------------------------------------------------------------------------------------------
    (
        "inspect {tmp}/nosuch",
        "BundleError",
        "{tmp}/nosuch: got No such file or directory; expected a bundle. Get the bundle again from where it was built.",
    ),
    (
        "inspect {tmp}/file",
        "BundleError",
        "{tmp}/file: got no regular file, or too short a one; expected a zip. Pack the bundle again with bespoke.",
    ),
    (
        "inspect {tmp}/folder",
        "BundleError",
        "{tmp}/folder: manifest.json: got No such file or directory; ...Get the bundle again from where it was built.",
    ),
    ("inspect ''", "BadParameter", "Invalid value for 'BUNDLE': the path is empty"),
    (
        "inspect {bundle} --pin-sha256 ü",
        "ConfigError",
        "--pin-sha256: got 'ü'; expected 64 hexadecimal digits: the sha256 of manifest.json. Change --pin-sha256.",
    ),
    (
        f"inspect {{bundle}} --pin-sha256 {NO_KEY}",
        "SignatureError",
        f"{{bundle}}: manifest.json: got sha256 ...; expected the pinned {NO_KEY}. Get the bundle that the app was built with.",
    ),
    (
        "inspect {bundle} --public-key {tmp}/nosuch",
        "SignatureError",
        "public key {tmp}/nosuch: got No such file or directory; expected a file. Check the path.",
    ),
    (
        "inspect {bundle} --plot {tmp}/p",
        "ConfigError",
        "plot {tmp}/p: got a name without an ending; expected .svg or .png. Name the file so.",
    ),
    (
        "inspect {bundle} --plot {tmp}/nowhere/p.svg",
        "ConfigError",
        "plot {tmp}/nowhere/p.svg: got a folder that is not there; expected an existing folder. Make the folder first.",
    ),
    (
        "inspect {bundle} --method mebp --plot {tmp}/p.svg",
        "ConfigError",
        "--method mebp: got no such method; expected one of mesp, generation. Name one of them.",
    ),
    (
        "verify {bundle} --engine executorch",
        "ConfigError",
        "--engine executorch: got a bundle for torch; expected 'torch', or a target that the bundle was compiled for. Build it with --targets executorch, or use --engine torch.",
    ),
    # ---- train -----------------------------------------------------------------------------------------------------------------
    ("train {bundle}", "MissingParameter", "Missing option '--state'."),
    ("train {bundle} --state ''", "BadParameter", "Invalid value for '--state': the path is empty"),
    (
        "train {bundle} --state {tmp}/new",
        "DataError",
        "training data: got no example of the user to train on, and no general text in the bundle; expected at least one. Add an example: run bespoke train --examples FILE.",
    ),
    (f"{TRAIN} --run-steps 0", "ConfigError", f"--run-steps: got 0; {STEPS}. Change --run-steps."),
    (f"{TRAIN} --run-steps ten", "BadParameter", "Invalid value for '--run-steps': 'ten' is not a valid integer."),
    (
        f"{TRAIN} --most-steps 99999999999999999999",
        "ConfigError",
        f"--most-steps: got 99999999999999999999; {STEPS}. Change --most-steps.",
    ),
    (
        f"{TRAIN} --steps 5",
        "ConfigError",
        "--steps: got '5'; expected --run-steps, the length of a new run, or --most-steps, the most steps of this call. Give one of the two.",
    ),
    (
        f"{TRAIN} --seed 99999999999999999999",
        "ConfigError",
        "--seed: got 99999999999999999999; expected less than 9223372036854775808. Change --seed.",
    ),
    (f"{TRAIN} --learning-rate nan", "ConfigError", f"--learning-rate: got nan; {FINITE}. Change --learning-rate."),
    (f"{TRAIN} --learning-rate inf", "ConfigError", f"--learning-rate: got inf; {FINITE}. Change --learning-rate."),
    (
        f"{TRAIN} --memory-mb nan",
        "ConfigError",
        "--memory-mb: got nan; expected MB of 10**6 bytes, more than 0. Change --memory-mb.",
    ),
    (
        f"{TRAIN} --general-share 2",
        "ConfigError",
        "--general-share: got 2.0; expected at most 1. Change --general-share.",
    ),
    (
        f"{TRAIN} --method mexp",
        "ConfigError",
        "method 'mexp': got no method of that name in the bundle; expected one of mesp. Name one of them, or build the bundle with it.",
    ),
    (
        f"{TRAIN} --engine gpu",
        "ConfigError",
        "--engine gpu: got a bundle for torch; expected 'torch', or a target that the bundle was compiled for. Build it with --targets gpu, or use --engine torch.",
    ),
    (
        f"{TRAIN} --memory-mb 0.5",
        "BudgetExceeded",
        "Training with 'mesp' (estimated peak ...): got ... more to come; expected at most ... together, 0.5 MB over what it held before. Raise the memory budget, ...",
    ),
    (
        f"{TRAIN} --plot {{tmp}}/p.gif",
        "ConfigError",
        "plot {tmp}/p.gif: got the suffix '.gif'; expected .svg or .png. Name the file so.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/nosuch.jsonl",
        "DataError",
        "{tmp}/nosuch.jsonl: got No such file or directory; expected a readable file. Check the path.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/file",
        "DataError",
        "{tmp}/file: got a file without an ending; expected one of .csv, .json, .jsonl, .md, .ndjson, .tsv, .txt. Write the examples as JSONL, one object per line.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/null.jsonl",
        "DataError",
        "{tmp}/null.jsonl, row 1: got nothing; expected one JSON object. Write one object on each line.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/half.jsonl",
        "DataError",
        "{tmp}/half.jsonl, row 1: got no JSON: ...; expected one JSON object. Write one object on each line.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/deep.jsonl",
        "DataError",
        "{tmp}/deep.jsonl, row 1: got JSON nested too deeply; expected one JSON object. Write one object on each line.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/number.jsonl",
        "DataError",
        "{tmp}/number.jsonl, row 1: example.text: got a number; expected text. Give it as one string.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/keys.jsonl",
        "DataError",
        "{tmp}/keys.jsonl, row 1: got the keys 'word'; expected 'messages', 'prompt' and 'completion', 'prompt', 'chosen' and 'rejected', or 'text'. Rename the keys, or map them: --field prompt=question --field completion=answer.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/latin.jsonl",
        "DataError",
        "{tmp}/latin.jsonl, row 1: got bytes that are not UTF-8 ...; expected UTF-8 text. Convert the file, for instance with iconv -t UTF-8, or name its encoding: --encoding cp1252.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/columns.csv --field prompt=x",
        "DataError",
        "{tmp}/columns.csv, row 2: got the keys 'a', 'b'; expected 'x', which --field names for 'prompt'. Correct --field, or give every row this key.",
    ),
    (
        f"{TRAIN} --examples {{tmp}}/columns.csv --field word=a",
        "ConfigError",
        "--field word: got 'a'; expected one of messages, prompt, completion, as, chosen, rejected, text, end, tokens, mask, and the name of a column. Write --field NAME=COLUMN.",
    ),
    # ---- evaluate, generate, export --------------------------------------------------------------------------------------------
    (
        "evaluate {bundle} --state {tmp}/new",
        "StateError",
        "{tmp}/new: got no state; expected the folder of a user's state, as training made it. Check the path; `bespoke train` with --examples makes a state.",
    ),
    (
        "evaluate {bundle} --state {state} --examples {tmp}/empty.jsonl",
        "DataError",
        "--examples: got none; expected at least one. ...",
    ),
    (
        f"{ANSWER} --temperature nan",
        "GenerationError",
        "--temperature: got nan; expected a number, 0 (greedy) or more. Change --temperature.",
    ),
    (
        f"{ANSWER} --top-p 0",
        "GenerationError",
        "--top-p: got 0.0; expected a number above 0, at most 1. Change --top-p.",
    ),
    (f"{ANSWER} --top-k 0", "GenerationError", "--top-k: got 0; expected a whole number, at least 1. Change --top-k."),
    (f"{ANSWER} --max-tokens 0", "BadParameter", "Invalid value for '--max-tokens': 0 is not in the range x>=1."),
    (
        f"{ANSWER} --seed 99999999999999999999",
        "GenerationError",
        "--seed: got 99999999999999999999; expected a whole number from 0 to 18446744073709551615. Change --seed.",
    ),
    (
        "generate {bundle} --state {state} " + "word" * 200,
        "GenerationError",
        "prompt: got ... tokens; expected 1 to 63 tokens, so that an answer fits into the context of 64. Shorten the prompt, or build the bundle with a larger context.",
    ),
    (
        "export {bundle} {tmp}/adapter --state {state}",
        "AdapterError",
        "the adapter to export: got none: no training was accepted, so the base model answers; expected an accepted adapter. Train first, or ask for --base, an adapter that changes nothing.",
    ),
    (
        "export {bundle} {tmp}/file --state {state} --base",
        "AdapterError",
        "{tmp}/file: got a file; expected a free name or a folder to replace. Choose another name, or remove it.",
    ),
    # ---- the state -------------------------------------------------------------------------------------------------------------
    (
        "versions {bundle} --state {tmp}/file",
        "StateError",
        "{tmp}/file: got no state; expected the folder of a user's state, as training made it. Check the path; `bespoke train` with --examples makes a state.",
    ),
    (
        "examples forget {bundle} nosuch --state {state}",
        "DataError",
        "example 'nosuch': got no such example; expected the id of a stored one. See which there are: bespoke examples list.",
    ),
    (
        "examples forget {bundle} '' --state {state}",
        "DataError",
        "id of an example: got 0 characters; expected text of 1 to 256 characters. Use another id, or none.",
    ),
    ("examples drop {bundle}", "NoSuchCommand", "No such command 'drop'."),
    ("trian", "NoSuchCommand", "No such command 'trian'...Did you mean 'train'?"),
]


@pytest.mark.parametrize(
    ("line", "kind", "says"), ROWS, ids=[row[0].replace("{", "").replace("}", "")[:70] for row in ROWS]
)
def test_the_error_says_what_is_wrong_with_a_command_line(
    line: str, kind: str, says: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[BespokeError | click.ClickException] = []
    tell = bespoke.cli.tell_error
    monkeypatch.setattr(bespoke.cli, "tell_error", lambda output, error: (printed.append(error), tell(output, error)))
    answer = run(*(place.fill(word) for word in shlex.split(line)))
    assert [type(error).__name__ for error in printed] == [kind], answer
    assert answer.code == printed[0].exit_code > 0
    assert answer.out == ""
    assert "Traceback" not in answer.err
    start = "bespoke: " if isinstance(printed[0], BespokeError) else "Error: "
    said = answer.err[answer.err.index(start) + len(start) :].rstrip("\n")
    assert place.holds(says, said), said
