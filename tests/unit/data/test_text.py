# SPDX-License-Identifier: Apache-2.0
"""The tokenizer against the tokenizers package on whole texts; content that looks like special tokens."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from bespoke.data.text import Tokenizer
from bespoke.errors import DataError, ModelError

IM_START, IM_END = 151644, 151645


def test_named_tokens_and_sizes_are_those_of_the_model(qwen: Tokenizer, story: Tokenizer) -> None:
    assert (qwen.bos_id, qwen.eos_id, qwen.vocab_size) == (None, IM_END, 151665)
    assert (story.bos_id, story.eos_id, story.vocab_size) == (1, 2, 512)


def test_ordinary_text_gives_the_tokens_of_the_tokenizers_package(
    qwen: Tokenizer, story: Tokenizer, qwen_oracle: Any, story_oracle: Any, data_folder: Path, persona_lines: list[str]
) -> None:
    lines = (data_folder / "text" / "wikitext-2" / "valid.txt").read_text().splitlines()[:600]
    # WikiText writes rare words as <unk>, which the story model has as a special token: not ordinary there.
    for text in lines + persona_lines:
        assert qwen.encode(text) == qwen_oracle.encode(text, add_special_tokens=False).ids
        if "<unk>" not in text:
            assert story.encode(text) == story_oracle.encode(text, add_special_tokens=False).ids


def test_every_special_token_in_content_is_read_as_its_characters(
    qwen: Tokenizer, qwen_oracle: Any, story: Tokenizer
) -> None:
    for token_id, token in qwen_oracle.get_added_tokens_decoder().items():
        ids = qwen.encode(f"a {token.content} b")
        assert (token_id in ids) == (not token.special)
        assert qwen.decode(ids, skip_special=False) == f"a {token.content} b"
        assert token_id in qwen.encode_template(f"a {token.content} b")
    for text in ("<s>", "</s>", "<unk>"):
        assert not story.control_ids.intersection(story.encode(f"a {text} b"))
        assert story.decode(story.encode(f"a {text} b"), skip_special=False) == f"a {text} b"


def test_a_marker_that_is_not_special_can_be_protected(data_folder: Path) -> None:
    own = Tokenizer.open(data_folder / "tokenizers" / "qwen2.5")
    assert 151657 in own.encode("<tool_call>")
    own.protect(["<tool_call>"])
    assert 151657 not in own.encode("<tool_call>")
    assert 151657 in own.encode_template("<tool_call>")


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=60))
def test_any_content_decodes_to_itself(story: Tokenizer, qwen: Tokenizer, text: str) -> None:
    assert qwen.decode(qwen.encode(text), skip_special=False) == unicodedata.normalize("NFC", text)
    ids = story.encode(text)
    assert not story.control_ids.intersection(ids)
    if "▁" not in text:  # that tokenizer's sign for a space
        assert story.decode(ids, skip_special=False) == text


def test_half_a_surrogate_pair_is_a_data_error(story: Tokenizer) -> None:
    with pytest.raises(DataError, match="surrogate"):
        story.encode(json.loads('"\\ud83d"'))


def _variant(folder: Path, pre_tokenizer: dict[str, Any]) -> bytes:
    """The story tokenizer with its space put there by a Metaspace pre-tokenizer."""
    data = json.loads((folder / "tokenizer.json").read_text())
    data["normalizer"] = None
    data["pre_tokenizer"] = pre_tokenizer
    return json.dumps(data).encode()


METASPACE = {"type": "Metaspace", "replacement": "▁", "split": False}


@pytest.mark.parametrize("kind", ["prepend", "first", "always", "never"])
def test_pieces_joined_give_the_tokens_of_the_whole_text(stories: Path, persona_lines: list[str], kind: str) -> None:
    plain = (stories / "tokenizer.json").read_bytes()
    data = plain if kind == "prepend" else _variant(stories, {**METASPACE, "prepend_scheme": kind})
    ours, oracle = Tokenizer.from_bytes(data), tokenizers.Tokenizer.from_buffer(data)
    for line in persona_lines[:60]:
        pieces = [
            ("<s>User\n", False),
            (line[:80], True),
            ("</s>\nBot\n", False),
            (" " + line[80:150], True),
            ("\n", False),
        ]
        ids: list[int] = []
        for text, is_content in pieces:
            encode = ours.encode if is_content else ours.encode_template
            ids += encode(text, previous=ids[-1] if ids else None)
        assert ids == oracle.encode("".join(text for text, _ in pieces), add_special_tokens=False).ids


def test_a_tokenizer_is_whole_again_from_its_files(story: Tokenizer, tmp_path: Path) -> None:
    for name, data in story.files().items():
        (tmp_path / name).write_bytes(data)
    again = Tokenizer.open(tmp_path)
    assert (again.bos_id, again.eos_id, again.special_tokens) == (story.bos_id, story.eos_id, story.special_tokens)
    assert again.files() == story.files()


def test_streaming_keeps_spaces_and_whole_characters(story: Tokenizer) -> None:
    prompt = story.encode("Once")
    rest = story.encode(" upon a café 🙂", previous=prompt[-1])
    step = story.stream(prompt)
    pieces = [step(token) for token in rest]
    assert "".join(pieces) == " upon a café 🙂"
    assert all("\ufffd" not in piece for piece in pieces)


def test_truncation_and_padding_left_in_the_file_have_no_effect(stories: Path, story: Tokenizer) -> None:
    data = json.loads((stories / "tokenizer.json").read_text())
    data["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    data["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<unk>",
    }
    text = "Once upon a time there was a little cat"
    assert Tokenizer.from_bytes(json.dumps(data).encode()).encode(text) == story.encode(text)
    assert Tokenizer.from_bytes(json.dumps(data).encode()).encode("a") == story.encode("a")


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer.open(tmp_path)
    with pytest.raises(ModelError, match="No such file"):
        Tokenizer.open(tmp_path / "missing" / "tokenizer.json")


def test_a_file_at_which_the_tokenizers_package_panics_is_refused(stories: Path) -> None:
    document = json.loads((stories / "tokenizer.json").read_text())
    single = [{"SpecialToken": {"id": "<gone>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    document["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    with pytest.raises(ModelError, match=r"PanicException.*expected a tokenizer\.json"):
        Tokenizer.from_bytes(json.dumps(document).encode())


def test_a_vocabulary_that_holds_a_control_token_cannot_be_forged() -> None:
    # Whole words are looked up before merging here, so the word </s> would be the control token.
    bpe = tokenizers.models.BPE(
        vocab={"a": 0, "</s>": 1, "<": 2, "/": 3, "s": 4, ">": 5}, merges=[], ignore_merges=True
    )
    one = tokenizers.Tokenizer(bpe)
    one.add_special_tokens(["</s>"])
    own = Tokenizer.from_bytes(one.to_str().encode())
    with pytest.raises(DataError, match="special token"):
        own.encode("</s>")
    assert own.encode("a") == [0]
