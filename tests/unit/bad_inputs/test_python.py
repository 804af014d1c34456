# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  a row of the table is one line
"""Bad arguments in Python and the message that each gets. Each row: the call, the kind of the error, what it says.

`open`, `m`, `P` and so on are the names below: a call is read as Python. Hints name what Python calls it; nothing is raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke import BespokeError, Budget, Lora, Personalizer, PersonalModel, Training
from tests.unit.bad_inputs.conftest import Place

PATH = "expected the path of a folder, as text or Path. Change"
MB = "expected MB of 10**6 bytes, more than 0. Change memory_mb."
SHAPES = "expected an object with messages, prompt and completion, prompt with chosen and rejected, or text. Give one JSON object per example."
IDS = "expected a list of token ids from 0 to 511. Tokenize with the tokenizer of the bundle's own model."
PROMPT = "expected text, messages or token ids. Give one of them."
STEPS = "expected a whole number from 1 to 10000000"
EITHER = "expected run_steps, the length of a new run, or most_steps, the most steps of this call"
CLOSED = "got a ... that was closed; expected an open one. Open it again with PersonalModel.open."

ROWS = [
    # ---- PersonalModel.open ----------------------------------------------------------------------------------------------------
    ("open(None, new)", "ConfigError", f"bundle: got None; {PATH} bundle."),
    ("open(3, new)", "ConfigError", f"bundle: got 3; {PATH} bundle."),
    ("open('', new)", "ConfigError", f"bundle: got an empty text; {PATH} bundle."),
    ("open('a\\0b', new)", "ConfigError", "bundle: got 'a\\x00b'; expected a path without NUL. Change bundle."),
    (
        "open('a' * 300, new)",
        "ConfigError",
        "bundle: got 'aaa...; expected a path of at most 4095 bytes, 255 a name. Change bundle.",
    ),
    (
        "open(bundle, 'file:///nosuch/alice')",
        "ConfigError",
        "state: got a URL, 'file:///nosuch/alice'; expected the path of a folder, as text or Path. Give the path in it, without the scheme.",
    ),
    (
        "open(bundle, type(tmp)('file:///nosuch/alice'))",
        "ConfigError",
        "state: got a URL, 'file:/nosuch/alice'; expected the path of a folder, as text or Path. Give the path in it, without the scheme.",
    ),
    ("open(bundle, None)", "ConfigError", f"state: got None; {PATH} state."),
    ("open(bundle, b'x')", "ConfigError", f"state: got b'x'; {PATH} state."),
    ("open(bundle, new, memory_mb='64')", "ConfigError", f"memory_mb: got '64'; {MB}"),
    ("open(bundle, new, memory_mb=nan)", "ConfigError", f"memory_mb: got nan; {MB}"),
    ("open(bundle, new, memory_mb=True)", "ConfigError", f"memory_mb: got True; {MB}"),
    ("open(bundle, new, memory_mb=10**400)", "ConfigError", f"memory_mb: got 1000...; {MB}"),
    (
        "open(bundle, new, pin_sha256=3)",
        "ConfigError",
        "pin_sha256: got 3; expected 64 hexadecimal digits: the sha256 of manifest.json. Change pin_sha256.",
    ),
    (
        "open(bundle, new, public_key='ab')",
        "ConfigError",
        "public_key: got 'ab'; expected bytes. Read the key's file as bytes.",
    ),
    (
        "open(bundle, new, engine='gpu')",
        "ConfigError",
        "engine='gpu': got a bundle for torch; expected 'torch', or a target that the bundle was compiled for. Build it with targets='gpu', or use engine='torch'.",
    ),
    # ---- train -----------------------------------------------------------------------------------------------------------------
    ("m.train(run_steps='ten')", "ConfigError", f"train.run_steps: got 'ten'; {STEPS}. Change train.run_steps."),
    ("m.train(run_steps=1.5)", "ConfigError", f"train.run_steps: got 1.5; {STEPS}. Change train.run_steps."),
    ("m.train(run_steps=True)", "ConfigError", f"train.run_steps: got True; {STEPS}. Change train.run_steps."),
    ("m.train(most_steps=0)", "ConfigError", f"train.most_steps: got 0; {STEPS}. Change train.most_steps."),
    ("m.train(steps=5)", "ConfigError", f"train.steps: got 5; {EITHER}. Give one of the two."),
    (
        "m.train(seed=10**20)",
        "ConfigError",
        "train.seed: got 100000000000000000000; expected less than 9223372036854775808. Change train.seed.",
    ),
    (
        "m.train(seed=10**5000)",
        "ConfigError",
        "train.seed: got something of Python's type 'int' that cannot be printed; expected less than 9223372036854775808. Change train.seed.",
    ),
    ("m.train(method=3)", "ConfigError", "train.method: got 3; expected the name of a method. Change train.method."),
    (
        "m.train(stop=3)",
        "ConfigError",
        "train.stop: got 3; expected a function that says whether to stop. Change train.stop.",
    ),
    (
        "m.train(on_step='x')",
        "ConfigError",
        "train.on_step: got 'x'; expected a function of a step and its loss. Change train.on_step.",
    ),
    (
        "m.train(learning_rate=nan)",
        "ConfigError",
        "train.learning_rate: got nan; expected a finite number. Change train.learning_rate.",
    ),
    (
        "m.train(learning_rate=inf)",
        "ConfigError",
        "train.learning_rate: got inf; expected a finite number. Change train.learning_rate.",
    ),
    (
        "m.train(learning_rate=object())",
        "ConfigError",
        "train.learning_rate: got <object object at ...>; expected a number. Change train.learning_rate.",
    ),
    (
        "m.train(schedule='steep')",
        "ConfigError",
        "train.schedule: got 'steep'; expected 'constant', 'linear' or 'cosine'. Change train.schedule.",
    ),
    (
        "m.train(lerning_rate=1.0)",
        "ConfigError",
        "train.lerning_rate: got 1.0; expected one of the fields accumulation, ... Remove it or correct its name.",
    ),
    (
        "m.train(sequence_lengths=(64,))",
        "ConfigError",
        "train.sequence_lengths: got [64]; expected [32], which the bundle was built for. Build a bundle with the other value.",
    ),
    (
        "m.train(clip_norm=2.0)",
        "ConfigError",
        "train.clip_norm: got 2.0; expected null, which the bundle was built for. Build a bundle with the other value.",
    ),
    ("m.train(packing=3)", "ConfigError", "train.packing: got 3; expected true or false. Change train.packing."),
    # ---- examples --------------------------------------------------------------------------------------------------------------
    ("m.examples.add(None)", "DataError", f"example: got nothing; {SHAPES}"),
    ("m.examples.add(3)", "DataError", f"example: got a number; {SHAPES}"),
    ("m.examples.add(['text'])", "DataError", f"example: got a list; {SHAPES}"),
    (
        "m.examples.add({})",
        "DataError",
        "example: got the keys none; expected 'messages', 'prompt' and 'completion', 'prompt', 'chosen' and 'rejected', or 'text'. ...",
    ),
    ("m.examples.add({'text': None})", "DataError", "example.text: got nothing; expected text. Give it as one string."),
    (
        "m.examples.add({'text': ''})",
        "DataError",
        "example: got nothing to train on: empty, a single token, or every token masked; expected at least one token that is trained on. Leave this example out.",
    ),
    (
        "m.examples.add({'text': '\\ud800'})",
        "DataError",
        "example: got half of a surrogate pair; expected what JSON can hold. Use text, finite numbers, lists and objects.",
    ),
    (
        "m.examples.add({'text': 'Hello', 'x': nan})",
        "DataError",
        "example: got a number that is not finite; expected what JSON can hold. Use text, finite numbers, lists and objects.",
    ),
    (
        "m.examples.add({'text': 'Hello', 'x': {1}})",
        "DataError",
        "example: got something else than JSON's values; expected what JSON can hold. Use text, finite numbers, lists and objects.",
    ),
    (
        "m.examples.add({'text': 'Hello there'}, id=3)",
        "DataError",
        "id of an example: got a number; expected text of 1 to 256 characters. Use another id, or none.",
    ),
    (
        "m.examples.add({'text': 'Hello there'}, id='')",
        "DataError",
        "id of an example: got 0 characters; expected text of 1 to 256 characters. Use another id, or none.",
    ),
    ("m.examples.add({'tokens': [1, -1]})", "DataError", f"example.tokens: got -1; {IDS}"),
    ("m.examples.add({'tokens': [1, 10**30]})", "DataError", f"example.tokens: got 1e+30; {IDS}"),
    (
        "m.examples.add({'tokens': [1, 2], 'mask': [0, nan]})",
        "DataError",
        "example: got a number that is not finite; expected what JSON can hold. Use text, finite numbers, lists and objects.",
    ),
    (
        "m.examples.forget(None)",
        "DataError",
        "id of an example: got nothing; expected text of 1 to 256 characters. Use another id, or none.",
    ),
    # ---- evaluate and generate ---------------------------------------------------------------------------------------------------
    ("m.evaluate(3)", "DataError", "examples: got a number; expected a list of examples. Give them as a list."),
    (
        "m.evaluate({'text': 'a'})",
        "DataError",
        "examples: got an object; expected a list of examples. Give them as a list.",
    ),
    ("m.evaluate([None])", "DataError", f"example 1: got nothing; {SHAPES}"),
    ("m.evaluate(split='test')", "ConfigError", "split: got 'test'; expected 'validation' or 'train'. Change split."),
    ("m.generate(None)", "GenerationError", f"prompt: got nothing; {PROMPT}"),
    ("m.generate(b'hi')", "GenerationError", f"prompt: got bytes; {PROMPT}"),
    ("m.generate([])", "GenerationError", f"prompt: got an empty list; {PROMPT}"),
    (
        "m.generate([{'role': 'user', 'content': 'hi'}])",
        "DataError",
        "prompt: got messages, for a model without a chat template; expected text, or prompt and completion. ...",
    ),
    (
        "m.generate('hi', temperature='hot')",
        "GenerationError",
        "temperature: got 'hot'; expected a number, 0 (greedy) or more. Change temperature.",
    ),
    (
        "m.generate('hi', temperature=nan)",
        "GenerationError",
        "temperature: got nan; expected a number, 0 (greedy) or more. Change temperature.",
    ),
    (
        "m.generate('hi', top_k=1.5)",
        "GenerationError",
        "top_k: got 1.5; expected a whole number, at least 1. Change top_k.",
    ),
    (
        "m.generate('hi', top_p=None)",
        "GenerationError",
        "top_p: got None; expected a number above 0, at most 1. Change top_p.",
    ),
    (
        "m.generate('hi', max_tokens='ten')",
        "GenerationError",
        "max_tokens: got 'ten'; expected a whole number, at least 1. Change max_tokens.",
    ),
    (
        "m.generate('hi', seed=-1)",
        "GenerationError",
        "seed: got -1; expected a whole number from 0 to 18446744073709551615. Change seed.",
    ),
    (
        "m.conversation(max_tokens=0)",
        "GenerationError",
        "max_tokens: got 0; expected a whole number, at least 1. Change max_tokens.",
    ),
    (
        "m.conversation(stop_texts='END')",
        "GenerationError",
        "stop_texts: got 'END'; expected a list of texts, none of them empty. Change stop_texts.",
    ),
    (
        "m.conversation(stop_texts=[''])",
        "GenerationError",
        "stop_texts: got ['']; expected a list of texts, none of them empty. Change stop_texts.",
    ),
    ("m.conversation().feed([])", "GenerationError", f"prompt: got an empty list; {PROMPT}"),
    ("m.conversation().feed([10**6])", "DataError", f"prompt: got 1000000; {IDS}"),
    (
        "m.classify([1, 2], [])",
        "DataError",
        "labels: got an empty list; expected a list of at least one text. Give one.",
    ),
    ("m.classify([1, 2], 'yes')", "DataError", "labels: got text; expected a list of texts. Give one."),
    ("m.score([1, 2], [None])", "DataError", "..."),
    ("m.generate_ids('abc')", "DataError", f"prompt: got 'abc'; {IDS}"),
    ("m.generate_ids([])", "DataError", f"prompt: got no tokens; {IDS}"),
    ("m.generate_ids([10**6])", "DataError", f"prompt: got 1000000; {IDS}"),
    # ---- adapters, another base, a closed model ------------------------------------------------------------------------------------
    ("m.export_adapter(None, base=True)", "ConfigError", f"folder: got None; {PATH} folder."),
    (
        "m.export_adapter(new, 'onnx')",
        "ConfigError",
        "format: got 'onnx'; expected 'peft' or 'mlx' or 'gguf'. Change format.",
    ),
    (
        "m.export_adapter(new)",
        "AdapterError",
        "the adapter to export: got none: no training was accepted, so the base model answers; expected an accepted adapter. Train first, or ask for base=True, an adapter that changes nothing.",
    ),
    ("m.import_adapter(None)", "ConfigError", f"folder: got None; {PATH} folder."),
    (
        "m.import_adapter(tmp / 'nosuch')",
        "AdapterError",
        "{tmp}/nosuch/adapter_config.json: got No such file or directory; expected the adapter_config.json of a PEFT or MLX adapter. ...",
    ),
    (
        "m.import_adapter(tmp / 'file')",
        "AdapterError",
        "{tmp}/file/adapter_config.json: got Not a directory; expected the adapter_config.json of a PEFT or MLX adapter. ...",
    ),
    ("PersonalModel.reset_for_new_base(None, new)", "ConfigError", f"bundle: got None; {PATH} bundle."),
    ("PersonalModel.reset_for_new_base(bundle, None)", "ConfigError", f"state: got None; {PATH} state."),
    ("closed.train(run_steps=1)", "StateError", "{state}...: " + CLOSED),
    ("closed.examples.add({'text': 'Hello there'})", "StateError", "{state}...: " + CLOSED),
    ("closed.versions()", "StateError", "{state}...: " + CLOSED),
    ("closed.generate('hi')", "StateError", "{state}...: " + CLOSED),
    # ---- Personalizer ------------------------------------------------------------------------------------------------------------
    (
        "Personalizer('m', train_on='me')",
        "ConfigError",
        "train_on: got 'me'; expected 'assistant', 'user' or 'all'. Choose one.",
    ),
    ("Personalizer(3)", "ConfigError", "model: got 3; expected a folder, a GGUF file or a hub id. Change model."),
    (
        "Personalizer('m', optimizers=3)",
        "ConfigError",
        "optimizers: got 3; expected a name, several different ones, or name -> options. Name one in optimizers.",
    ),
    (
        "Personalizer('m', optimizers={'mesp': 3})",
        "ConfigError",
        "optimizers: got {'mesp': 3}; expected a name, several different ones, or name -> options. Name one in optimizers.",
    ),
    (
        "Personalizer('m', targets=None)",
        "ConfigError",
        "targets: got None; expected a name, several different ones, or name -> options. Name one in targets.",
    ),
    ("Personalizer('m', data=3)", "ConfigError", "data: got 3; expected a file, 'auto' or None. Change data."),
    (
        "Personalizer('m', fields='abc')",
        "ConfigError",
        "fields: got 'abc'; expected {what it is: the column that holds it} or None. Change fields.",
    ),
    (
        "Personalizer('m', training={'steps': 3})",
        "ConfigError",
        "training: got {'steps': 3}; expected Training(...). Change training.",
    ),
    (
        "Personalizer('m', signing_key='abc')",
        "ConfigError",
        "signing_key: got 'abc'; expected the bytes of a PEM file or None. Change signing_key.",
    ),
    ("Personalizer(tmp / 'folder').build(None)", "ConfigError", f"out: got None; {PATH} out."),
    (
        "Training(learning_rate=0)",
        "ConfigError",
        "Training.learning_rate: got 0; expected more than 0. Change Training.learning_rate.",
    ),
    (
        "Training(step=3)",
        "ConfigError",
        "Training.step: got 3; expected one of the fields accumulation, ... Remove it or correct its name.",
    ),
    ("Budget(memory_mb=-1)", "ConfigError", "Budget.memory_mb: got -1; expected more than 0. Change Budget.memory_mb."),
    (
        "Budget(memory_mb=inf)",
        "ConfigError",
        "Budget.memory_mb: got inf; expected a finite number. Change Budget.memory_mb.",
    ),
    ("Lora(rank='8')", "ConfigError", "Lora.rank: got '8'; expected a whole number. Change Lora.rank."),
    (
        "Personalizer('m', targets=[])",
        "ConfigError",
        "targets: got none; expected at least one name. Name one in targets.",
    ),
    (
        "Personalizer('m', context=255)",
        "ConfigError",
        "context: got 255; expected at least 256, the longest of sequence_lengths. Raise it, or leave out longer sequences.",
    ),
    (
        "Personalizer('m', optimizers='executorch')",
        "ConfigError",
        "optimizer 'executorch': got no plugin of that name; expected one of the installed optimizers: fzoo, hizoo, mebp, mesp, mezo...Install the package that provides the optimizer 'executorch'.",
    ),
    (
        "Personalizer('m', optimizers={'mesp': {'learning_rate': inf}})",
        "ConfigError",
        "optimizers.mesp.learning_rate: got inf; expected a finite number. Change optimizers.mesp.learning_rate.",
    ),
]


@pytest.fixture
def models(place: Place) -> Iterator[tuple[PersonalModel, PersonalModel]]:
    """An open one, and one that was closed."""
    closed = PersonalModel.open(place.bundle, place.state)
    closed.close()
    with PersonalModel.open(place.bundle, place.state) as model:
        yield model, closed


@pytest.mark.parametrize(("call", "kind", "says"), ROWS, ids=[row[0] for row in ROWS])
def test_the_error_says_what_is_wrong_with_an_argument(
    call: str, kind: str, says: str, place: Place, models: tuple[PersonalModel, PersonalModel]
) -> None:
    names = {
        "open": PersonalModel.open,
        "PersonalModel": PersonalModel,
        "Personalizer": Personalizer,
        "m": models[0],
        "closed": models[1],
        "bundle": place.bundle,
        "new": place.tmp / "new",
        "tmp": Path(place.tmp),
        "nan": float("nan"),
        "inf": float("inf"),
        "Budget": Budget,
        "Lora": Lora,
        "Training": Training,
    }
    kept = len(models[0].examples)
    with pytest.raises(BespokeError) as raised:
        eval(call, names)
    assert type(raised.value).__name__ == kind
    assert place.holds(says, str(raised.value)), str(raised.value)
    assert not (place.tmp / "new").exists()  # what is refused leaves nothing behind
    assert len(models[0].examples) == kept
