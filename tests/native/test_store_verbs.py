# SPDX-License-Identifier: Apache-2.0
"""The store's verbs through the C API: what they answer is the SDK's records, and what they leave is judged by the state reader."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pytest

from bespoke.bundle.reader import read_bundle
from bespoke.core import library
from bespoke.data.text import Tokenizer
from bespoke.errors import AdapterError, BespokeError, ConfigError, DataError, StateError
from bespoke.model.special_tokens import special_token_settings
from bespoke.rules.records import AddedExample, ExampleInfo, Forgotten, Version
from bespoke.rules.report import Evaluation
from tests.native.text_bundles import text_bundles
from tests.support.bundles import tiny_core_bundle
from tests.support.example_encoder import ExampleEncoder
from tests.support.reading import read_state

__all__ = ["text_bundles", "tiny_core_bundle"]

EXAMPLES = [
    {"text": "the cat sat on a mat"},
    {"prompt": "the cat", "completion": " went home"},
    {"tokens": [1, 2, 3, 4], "mask": [0, 0, 1, 1]},
    {"text": "because it was tired of sitting there for a while and then it went to sleep on a mat, the cat"},
    {"prompt": "a mat " * 9, "completion": " home" * 30, "note": {"number": 2**70, "share": 0.1}},
]


class Verbs:
    """A model that is open in this process, by the library alone."""

    def __init__(self, bundle: Path, state: Path) -> None:
        self.core, self.state, self.model = library.load(), state, c.c_void_p()
        self.core.call("bespoke_open", place(bundle), library.text(str(state)), None, None, c.byref(self.model))

    def ask(self, verb: str, *arguments: Any) -> Any:
        return self.core.ask(f"bespoke_{verb}", self.model, *arguments)

    def add(self, example: Any, id: str = "", **fields: Any) -> AddedExample:
        text = example if isinstance(example, str | bytes) else json.dumps(example, ensure_ascii=False)
        return AddedExample(
            **self.ask("add_example", library.struct(library.CExample, json=text, id=id, **fields), None)
        )

    def export(self, folder: Path, base: bool) -> Path:
        self.core.call(
            "bespoke_export_adapter", self.model, library.text(str(folder)), library.text("peft"), base, None
        )
        return folder

    def take(self, folder: Path, trust_base: bool = False) -> int:
        version = c.c_int64()
        self.core.call(
            "bespoke_import_adapter", self.model, library.text(str(folder)), trust_base, None, c.byref(version)
        )
        return version.value

    def examples(self, after: str = "", most: int = 0) -> list[ExampleInfo]:
        return [ExampleInfo(**info) for info in self.ask("list_examples", library.text(after), most)]

    def versions(self) -> list[Version]:
        return [Version(**version) for version in self.ask("list_versions")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.plain("bespoke_release", self.model)


def place(bundle: Path) -> Any:
    return library.struct(library.CBundle, path=str(bundle))


@pytest.fixture
def alice(text_bundles: dict[str, Path], tmp_path: Path) -> Iterator[Verbs]:
    with Verbs(text_bundles["llama"], tmp_path / "alice") as verbs:
        yield verbs


def encoder_of(bundle: Path) -> ExampleEncoder:
    """Hugging Face's tokenizer, and the Python code around it."""
    with read_bundle(bundle) as opened:
        text = opened.manifest.text
        model = bundle.parent / "model"
        tokenizer = Tokenizer.open(model, special_token_settings(model))
        return ExampleEncoder(
            tokenizer, None, text.train_on, max(opened.manifest.sequence_lengths), vocab_size=text.vocab_size
        )


def test_examples_are_tokenized_kept_and_listed(alice: Verbs, text_bundles: dict[str, Path]) -> None:
    encoder = encoder_of(text_bundles["llama"])
    for number, example in enumerate(EXAMPLES):
        expected = encoder.encode(example)
        added = alice.add(example, f"id {number} \N{SNOWMAN}")
        assert (added.id, added.created) == (f"id {number} \N{SNOWMAN}", True)
        assert (added.truncated_tokens, added.truncated_trained_tokens) == (
            expected.truncated_tokens,
            expected.truncated_trained_tokens,
        )
        assert added.unused_keys == ({"note": 1} if "note" in example else {})
        assert alice.add(example, added.id).created is False
        info = alice.examples()[-1]
        assert (info.json, info.split) == (example, added.split)
        assert (info.tokens, info.trained_tokens, info.rows) == (
            expected.tokens,
            expected.trained_tokens,
            len(expected.rows),
        )
    assert alice.add(EXAMPLES[4], "last").truncated_trained_tokens > 0
    count = c.c_int64()
    alice.core.call("bespoke_count_examples", alice.model, c.byref(count))
    assert count.value == len(alice.examples()) == len(EXAMPLES) + 1
    found = read_state(alice.state, text_bundles["llama"])
    assert found["broken"] == []


REFUSED: list[tuple[Any, dict[str, Any], type[BespokeError], str]] = [
    (b"", {}, DataError, "example"),
    (b"[1]", {}, DataError, "example"),
    (b'{"text": 1}', {}, DataError, "example.text"),
    (b'{"text": "half \\ud800"}', {}, DataError, "example"),
    (b'{"text": NaN}', {}, DataError, "example"),
    (b'{"text": "a", "text": "b"}', {}, DataError, "example"),
    (b'{"words": "a"}', {}, DataError, "example"),
    (b'{"text": ""}', {}, DataError, "example"),
    (b'{"tokens": [1, 300, 2]}', {}, DataError, "example.tokens"),
    (b'{"messages": [{"role": "user", "content": "a"}]}', {}, DataError, "example.messages"),
    (b'{"text": "\xff"}', {}, ConfigError, "bespoke_example.json"),
    (b'{"text": "a mat"}', {"id": "x" * 257}, DataError, "id of an example"),
    (b'{"text": "a mat"}', {"id": b"\xff"}, ConfigError, "bespoke_example.id"),
    (b'{"text": "a mat"}', {"use": "train them all"}, ConfigError, "bespoke_example.use"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_no_example_is_refused_and_nothing_is_kept(alice: Verbs, number: int) -> None:
    text, fields, kind, subject = REFUSED[number]
    with pytest.raises(kind) as caught:
        alice.add(text, **fields)
    assert type(caught.value) is kind
    assert caught.value.subject.startswith(subject), caught.value
    assert all((caught.value.got, caught.value.expected, caught.value.next_step))
    assert alice.examples() == []


def test_an_id_belongs_to_one_example(alice: Verbs) -> None:
    alice.add(EXAMPLES[0], "one")
    with pytest.raises(DataError, match="other content"):
        alice.add(EXAMPLES[1], "one")


def test_a_bundle_without_a_tokenizer_takes_token_ids_only(tiny_core_bundle: Path, tmp_path: Path) -> None:
    with Verbs(tiny_core_bundle, tmp_path / "state") as verbs:
        with pytest.raises(DataError, match="token ids only"):
            verbs.add(EXAMPLES[0])
        assert verbs.add(EXAMPLES[2]).created


def test_what_is_forgotten_is_in_no_file(alice: Verbs, text_bundles: dict[str, Path]) -> None:
    alice.add({"text": "the cat sat on a mat"}, "stays")
    alice.add({"text": "because it was tired"}, "goes")
    answers = [alice.ask("forget_example", library.text("goes"), None) for _ in range(2)]
    assert answers == [{**asdict(Forgotten(there, 0, False)), "rounds": []} for there in (True, False)]
    assert [info.id for info in alice.examples()] == ["stays"]
    assert read_state(alice.state, text_bundles["llama"], ["because it was tired"])["broken"] == []


def test_adapters_go_out_come_in_and_are_taken_back(
    alice: Verbs, tmp_path: Path, text_bundles: dict[str, Path]
) -> None:
    with pytest.raises(AdapterError, match="no training was accepted"):
        alice.export(tmp_path / "none", base=False)
    assert not (tmp_path / "none").exists()
    first = alice.export(tmp_path / "first", base=True)
    assert (alice.take(first), alice.take(first)) == (1, 2)
    versions = alice.versions()
    assert [(version.id, version.run_id, version.source) for version in versions] == [
        (1, None, "first"),
        (2, None, "first"),
    ]
    again = alice.export(tmp_path / "again", base=False)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in first.iterdir()
    }
    assert Version(**alice.ask("rollback", None)) == versions[0]
    assert alice.ask("rollback", None) is None
    assert alice.ask("rollback", None) is None
    alice.take(first)
    alice.core.call("bespoke_reset", alice.model, None)
    assert alice.versions() == []
    assert read_state(alice.state, text_bundles["llama"])["broken"] == []
    with Verbs(text_bundles["qwen2"], tmp_path / "other") as other, pytest.raises(AdapterError):
        other.take(first)


def test_a_state_moves_to_another_base_with_its_examples(
    alice: Verbs, tmp_path: Path, text_bundles: dict[str, Path]
) -> None:
    alice.add(EXAMPLES[0], "one")
    alice.add(EXAMPLES[2], "two")
    alice.take(alice.export(tmp_path / "adapter", base=True))
    alice.core.plain("bespoke_release", alice.model)
    alice.model = c.c_void_p()
    state, other = library.text(str(alice.state)), text_bundles["qwen2"]
    with pytest.raises(StateError, match="reset_for_new_base"):
        Verbs(other, alice.state)
    alice.core.call("bespoke_reset_for_new_base", place(other), state, None, None)
    with Verbs(other, alice.state) as moved:
        assert [info.id for info in moved.examples()] == ["one", "two"]
        assert moved.versions() == []
    assert read_state(alice.state, other)["broken"] == []
    with pytest.raises(ConfigError):
        alice.core.call("bespoke_reset_for_new_base", place(other), library.text(""), None, None)


def test_examples_that_are_given_are_judged_as_the_users_are_and_not_kept(
    tiny_core_bundle: Path, tmp_path: Path
) -> None:
    examples = [{"tokens": [3 + number, 4 + number, 5 + number, 6]} for number in range(4)]
    with Verbs(tiny_core_bundle, tmp_path / "state") as verbs:
        for example in examples:
            verbs.add(example)
        kept = verbs.ask("evaluate", library.text("train"), library.text(""), None)
    with Verbs(tiny_core_bundle, tmp_path / "empty") as verbs:
        given = verbs.ask("evaluate", library.text(""), library.text(json.dumps(examples)), None)
        assert Evaluation(**given) == Evaluation(**kept)
        assert verbs.examples() == []
        for wrong, says in (
            ("{}", "a list of"),
            ("[]", "at least one"),
            ('[{"tokens": [1]}]', "example 1"),
            ("[", "JSON"),
        ):
            with pytest.raises(DataError, match=says):
                verbs.ask("evaluate", library.text(""), library.text(wrong), None)
