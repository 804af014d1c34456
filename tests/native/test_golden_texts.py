# SPDX-License-Identifier: Apache-2.0
"""`verify` of the core tokenizes the golden texts with the bundle's tokenizer.bin, and finds another tokenizer or another text."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.vocab import bytes_to_unicode

from bespoke.bundle.reader import read_bundle
from bespoke.core import finding, run
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.errors import BundleError, GoldenMismatch
from tests.native.golden_edits import edited
from tests.support.bundles import drop_later_fields
from tests.unit.golden.bundles import build, changed, rewrite_manifest, tensors

pytestmark = pytest.mark.xdist_group("golden_texts")  # one process builds the bundle
BIN, GOLDEN = "text/tokenizer.bin", "golden/golden.safetensors"


@pytest.fixture(autouse=True)
def built_core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with a byte-level BPE."""
    return build(tmp_path_factory.mktemp("golden_texts"), "llama", "mezo", target="executorch", text=True)


def verify(bundle: Path, state: Path) -> dict[str, Any]:
    return run({"verb": "verify", "bundle": str(bundle), "state": str(state)})


def refused(bundle: Path, state: Path) -> GoldenMismatch:
    with pytest.raises(GoldenMismatch) as caught:
        verify(bundle, state)
    return caught.value


def golden_texts(bundle: Path) -> list[dict[str, Any]]:
    with read_bundle(bundle) as opened:
        texts: list[dict[str, Any]] = json.loads(opened.mapped(GOLDEN)["document"].tobytes())["texts"]
        return texts


def test_every_text_is_held(bundle: Path, tmp_path: Path) -> None:
    report = verify(bundle, tmp_path / "state")
    (check,) = [check for check in report["checks"] if check["what"] == "texts"]
    assert check["compared"] == len(golden_texts(bundle)) == 500
    assert report["texts_skipped"] == 0


@pytest.mark.parametrize("number", [0, 137, 499])
def test_a_changed_text_and_changed_tokens_are_named(bundle: Path, tmp_path: Path, number: int) -> None:
    text = golden_texts(bundle)[number]["text"]

    def other_text(content: dict[str, Any]) -> None:
        content["texts"][number]["text"] += "!"

    def other_tokens(content: dict[str, Any]) -> None:
        content["texts"][number]["ids"][-1] ^= 1

    for name, change, shown in (("a", other_text, text + "!"), ("b", other_tokens, text)):
        error = refused(changed(bundle, tmp_path / name, GOLDEN, tensors(edited(change))), tmp_path / f"{name}.state")
        assert error.subject.startswith(f"Golden text {number} of 500, ")
        if shown.isascii() and shown.isprintable() and len(shown) < 60:
            assert shown in error.subject
        assert error.got.startswith("tokens [")
        assert error.expected.startswith("tokens [")


def test_another_tokenizer_is_found_and_named_by_what_it_does(bundle: Path, tmp_path: Path) -> None:
    document = json.loads((bundle.parent / "model" / "tokenizer.json").read_bytes())
    document["model"]["merges"].pop(3)
    fewer = write_tokenizer_file(Tokenizer.from_bytes(json.dumps(document).encode(), None))
    error = refused(changed(bundle, tmp_path / "b", BIN, written(lambda data: fewer)), tmp_path / "state")
    assert error.subject.startswith("Golden text ")
    assert "tokens" in error.got


@pytest.mark.parametrize("with_unknown", [False, True])
def test_texts_whose_bytes_have_no_tokens_are_held(bundle: Path, tmp_path: Path, with_unknown: bool) -> None:
    """They are not decoded to the text again: U+0001 is lost, or a special token that the stream leaves out."""
    document = json.loads((bundle.parent / "model" / "tokenizer.json").read_bytes())
    for byte in (1, 2):
        del document["model"]["vocab"][bytes_to_unicode()[byte]]
    special = document["added_tokens"][0]["content"]
    document["model"]["unk_token"] = special if with_unknown else None
    tokenizer = Tokenizer.from_bytes(json.dumps(document).encode())

    def of_this_tokenizer(content: dict[str, Any]) -> None:
        for one, text in zip(content["texts"], ("\x01\x02", "Hello\x01\x02world", "#\x01# a"), strict=False):
            one["text"] = text
        for one in content["texts"]:
            one["ids"] = tokenizer.encode(one["text"])
        assert (content["texts"][0]["ids"] == []) is not with_unknown

    data = write_tokenizer_file(tokenizer)
    other = changed(bundle, tmp_path / "a", BIN, written(lambda _: data))
    other = changed(other, tmp_path / "b", GOLDEN, tensors(edited(of_this_tokenizer)))
    report = verify(other, tmp_path / "state")
    assert [check["compared"] for check in report["checks"] if check["what"] == "texts"] == [500]


def test_a_token_that_decodes_to_something_else_is_found(bundle: Path, tmp_path: Path) -> None:
    """Encoding reads other tables than decoding, so only the way back shows it."""
    position = place_of_token(bundle, b"z")
    damaged = changed(bundle, tmp_path / "b", BIN, written(lambda data: data[:position] + b"q" + data[position + 1 :]))
    error = refused(damaged, tmp_path / "state")
    assert error.got.startswith("decoded to ")
    assert error.expected == "the text again"


def test_a_tokenizer_file_that_is_none_is_refused(bundle: Path, tmp_path: Path) -> None:
    damaged = changed(bundle, tmp_path / "b", BIN, written(lambda data: data[: len(data) // 2]))
    with pytest.raises(BundleError, match=r"text/tokenizer\.bin"):
        verify(damaged, tmp_path / "state")


def test_a_bundle_of_before_tokenizer_bin_counts_its_texts_as_skipped(bundle: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(bundle, tmp_path / "b"))
    content = json.loads((old / "manifest.json").read_bytes())
    content["format_version"]["minor"] = 0
    plan = content.pop("generation")["file"]
    del content["text"]["tokenizer_bin"], content["files"][BIN], content["files"][plan]
    drop_later_fields(content)
    for target in content["targets"]:
        for artifact in target["artifacts"]:
            del artifact["baked"]
    for name in (BIN, plan):
        (old / name).unlink()
    data = (bundle.parent / "model" / "tokenizer.json").read_bytes()
    (old / "text" / "tokenizer.json").write_bytes(data)
    content["text"]["tokenizer"] = "text/tokenizer.json"
    content["files"]["text/tokenizer.json"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    rewrite_manifest(old, content)
    report = verify(old, tmp_path / "state")
    assert report["texts_skipped"] == 500
    assert "texts" not in {check["what"] for check in report["checks"]}


def written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return apply


def place_of_token(bundle: Path, token: bytes) -> int:
    """Where in tokenizer.bin the bytes stand that this token of one byte is decoded to, by the layout in tokenizer_file.py."""
    data = (bundle / BIN).read_bytes()
    counts = struct.unpack_from("<14Q", data, -(-(8 + 11 * 4) // 8) * 8)
    at = -(-(8 + 11 * 4) // 8) * 8 + 14 * 8
    byte_ids = np.frombuffer(data, "<u4", 256, at)
    at += 256 * 4
    at += -at % 8
    at += counts[1] * 16  # merges
    ends = np.frombuffer(data, "<u4", counts[2], at)
    at += counts[2] * 4
    at += -at % 8
    place = at + int(ends[byte_ids[token[0]] - 1])
    assert data[place : place + 1] == token
    return place
