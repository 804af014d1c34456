# SPDX-License-Identifier: Apache-2.0
"""Every JSON document that comes out of the C API, from a real call, has each field of its schema and no other."""

from __future__ import annotations

import ctypes as c
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import Federation, Lora, Personalizer, Training
from bespoke.core import library
from tests.native.conftest import ROOT
from tests.support import c_header
from tests.support.bundles import made_once
from tests.support.json_schema import violations
from tests.support.models import tiny_model
from tests.unit.golden.bundles import byte_level_bpe

SCHEMAS = ROOT / "bindings" / "schema"
INPUTS = {"example", "manifest", "plan", "round_document"}  # what is read and does not come out
OF_THE_TOOL = {"bench_report"}  # comes out of bespoke-core alone: test_bench.py
OF_ROUNDS = {"device_document"}  # travels within a request, and is read by a server: test_taking_part.py
STRUCTS = {"answer_piece"}  # comes out as a struct; the tool of the core writes it as JSON
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
QUESTION = {"role": "user", "content": "a cat"}
CHAT = [QUESTION, {"role": "assistant", "content": "sat"}]


@pytest.fixture(scope="session")
def chat_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random chat model for the core."""

    def make(folder: Path) -> None:
        sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
        model = tiny_model("llama", folder / "model", vocab_size=300, **sizes)
        byte_level_bpe().save(str(model / "tokenizer.json"))
        (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": CHAT_TEMPLATE}))
        training = Training(sequence_lengths=(32,), batch_size=1, steps=3, learning_rate=1e-2)
        Personalizer(
            model,
            {"mesp": {"federated_directions": 2}},
            "executorch",
            context=64,
            lora=Lora(rank=2),
            training=training,
            data=None,
            federation=Federation(task="words", server_key="ab" * 32),
        ).build(folder / "bundle")

    return made_once(tmp_path_factory, "chat_documents", make) / "bundle"


class Model:
    """An open model, by the library alone, and the documents that its calls gave: (schema, document)."""

    def __init__(self, bundle: Path, state: Path) -> None:
        self.core, self.model = library.load(), c.c_void_p()
        place, options = (
            library.struct(library.CBundle, path=str(bundle)),
            library.struct(library.COptions, memory_mb=-1.0),
        )
        self.core.call("bespoke_open", place, library.text(str(state)), options, None, c.byref(self.model))
        self.given: list[tuple[str, Any]] = []

    def ask(self, schema: str, verb: str, *arguments: Any) -> Any:
        document = self.core.ask(f"bespoke_{verb}", self.model, *arguments)
        self.given.append((schema, document))
        return document

    def listed(self, schema: str, verb: str, *arguments: Any) -> Any:
        documents = self.core.ask(f"bespoke_{verb}", self.model, *arguments)
        self.given += [(schema, document) for document in documents]
        return documents


def cancelled_at_once() -> Any:
    return library.struct(library.CCall, progress=library.OnProgress(lambda _, told: told.contents.step))


def use(model: Model, folder: Path) -> None:
    """Every verb that gives a document."""
    text = library.text
    messages = library.struct(library.CExample, json=json.dumps({"messages": CHAT, "note": 1}), id="a")
    model.ask("added_example", "add_example", messages, None)
    for number in range(6):
        example = library.struct(library.CExample, json=json.dumps({"text": "the cat sat on a mat " * (number + 1)}))
        model.ask("added_example", "add_example", example, None)
    model.ask("added_example", "correct", text(json.dumps(CHAT)), text("went home"), None)
    model.listed("example_info", "list_examples", text(""), 0)
    model.listed("planned_training", "planned_training")
    model.ask("description", "describe")
    model.ask("train_report", "train", None, cancelled_at_once())
    run = model.ask("run", "current_run")
    assert run["ended_because"] is None
    assert model.ask("train_report", "train", None, None)["stopped_because"] == "finished"
    model.ask("evaluation", "evaluate", text("train"), text(""), None)
    model.ask("verify_report", "verify", None)

    model.core.call("bespoke_export_adapter", model.model, text(str(folder)), text("peft"), 1, None)
    for _ in range(2):
        model.core.call("bespoke_import_adapter", model.model, text(str(folder)), 0, None, c.byref(c.c_int64()))
    model.listed("version", "list_versions")
    model.ask("version", "rollback", None)

    labels = text(json.dumps(["cat", "mat"]))
    model.listed("score", "score", text(json.dumps([QUESTION])), labels, None)
    model.ask("classification", "classify", text(json.dumps([QUESTION])), labels, None)
    model.core.call("bespoke_federation_join", model.model, None)
    model.ask("federation_status", "federation_status")
    model.ask("federation_request", "federation_request")
    model.ask("federation_report", "federation_take_part", None)

    model.ask("forgotten", "forget_example", text("a"), None)
    model.given += [("error_references", references) for references in references_of_errors(model)]


def references_of_errors(model: Model) -> Iterator[Any]:
    """Of errors that name a verb and a setting with a value."""
    functions = model.core._functions
    settings = library.struct(library.CTraining, method="nosuch", settings='{"learning_rate": -1.0}')
    unfinished = library.struct(library.CTraining, settings='{"learning_rate": 0.5}')
    model.core.ask("bespoke_train", model.model, None, cancelled_at_once())
    for training in (settings, unfinished):
        error = c.POINTER(library.CError)()
        assert functions.bespoke_check_training(model.model, training, c.byref(error)) != 0
        assert error.contents.references
        yield json.loads(error.contents.references)
        model.core.plain("bespoke_error_free", error)


@pytest.fixture(scope="module")
def documents(chat_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Any]]:
    folder = tmp_path_factory.mktemp("documents")
    model = Model(chat_bundle, folder / "state")
    try:
        use(model, folder / "adapter")
    finally:
        model.core.plain("bespoke_release", model.model)
    return model.given


def schema_of(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return schema


def outputs() -> set[str]:
    return (
        {path.name.removesuffix(".schema.json") for path in SCHEMAS.glob("*.schema.json")}
        - INPUTS
        - STRUCTS
        - OF_THE_TOOL
        - OF_ROUNDS
    )


def test_every_document_holds_the_fields_of_its_schema_and_no_other(documents: list[tuple[str, Any]]) -> None:
    assert {name for name, _ in documents} == outputs()
    wrong = {name: found for name, document in documents if (found := violations(document, schema_of(name)))}
    assert wrong == {}


def test_a_document_without_a_field_or_with_one_more_is_noticed(documents: list[tuple[str, Any]]) -> None:
    for name, document in dict(documents).items():
        schema = schema_of(name)
        assert violations({**document, "unknown": 1}, schema), name
        for field in schema["required"]:
            assert violations({key: value for key, value in document.items() if key != field}, schema), (name, field)
    report = dict(documents)["train_report"]
    assert violations({**report, "stopped_because": "tired"}, schema_of("train_report"))


def test_the_header_names_the_schema_of_each_document() -> None:
    header = c_header.text()
    assert {name for name in outputs() if not re.search(rf"\({name}(, a list[^)]*)?\)", header)} == set()


def test_schemas_accept_words_of_later_versions() -> None:
    for name in outputs():
        assert closed_lists(schema_of(name)) == [], name


def closed_lists(schema: Any) -> list[Any]:
    """The lists of words that exclude every other word."""
    if isinstance(schema, list):
        return [found for part in schema for found in closed_lists(part)]
    if not isinstance(schema, dict):
        return []
    options = schema.get("anyOf", [])
    is_open = {"type": "string"} in options and "accept" in schema.get("$comment", "")
    inside = [part for key, part in schema.items() if not (key == "anyOf" and is_open)]
    return ([schema] if "enum" in schema else []) + closed_lists(inside)
