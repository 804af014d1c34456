# SPDX-License-Identifier: Apache-2.0
"""A tokenizer.bin in which anything was changed is refused, or used without a crash and without text that is no UTF-8."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bespoke.errors import BundleError
from tests.native.conftest import sanitized_core
from tests.native.lab_process import end
from tests.native.text.lab import TextLab
from tests.support.checks import count, new_seed, record_check
from tests.support.strings import random_text
from tests.support.tokenizer_families import Family
from tests.support.tokenizer_mutations import HEADER, UNKNOWN, VOCABULARY, change

MUTATED = 20_000
TEXTS = [
    "<|im_start|>user\n",
    "Once upon a time, it's 2019: café e\u0301\u0323 가각 <s></s> <|eot_id|>\n\n",
    "a" * 60 + "  \U0010ffff\u1100\u1161",
]


@pytest.fixture(scope="module", params=["release", pytest.param("sanitized", marks=pytest.mark.slow)])
def lab(request: pytest.FixtureRequest) -> Iterator[TextLab]:
    if request.param == "release":
        one = TextLab(request.getfixturevalue("program"))
    else:
        build = sanitized_core()
        one = TextLab(build / "tests" / "text_lab")
    yield one
    assert end(one.process) == 0


@pytest.mark.parametrize("name", ["stories260K", "llama3", "qwen3_5", "llama_always", *("llama3_fused", "gemma_fused")])
def test_a_changed_file_crashes_nothing(lab: TextLab, family_of: Callable[[str], Family], name: str) -> None:
    family = family_of(name)
    data = family.path.read_bytes()
    lab.open(family.path)
    assert lab.ask("mutated", edits=[], size=len(data), texts=TEXTS) > 0
    seed, number = new_seed(), count(MUTATED)
    chance = random.Random(seed)
    refused = 0
    for _ in range(number):
        edits = [edit for _ in range(chance.choice((1, 1, 1, 3))) for edit in change(chance, data)]
        size = len(data) if chance.random() < 0.95 else chance.randrange(len(data))
        texts = [*TEXTS, random_text(chance, list(family.added.values()))]
        try:
            lab.ask("mutated", edits=edits, size=size, texts=texts)
        except BundleError:
            refused += 1
        except EOFError as error:
            pytest.fail(f"{error}: edits={edits}, size={size}, texts={texts}")
    assert 0 < refused < number
    record_check(f"tokenizer.bin changed, {name}", {"files": number, "refused": refused}, seed)


@pytest.mark.parametrize("place", range(0, HEADER, 4))
def test_a_larger_number_in_the_header_is_refused(lab: TextLab, family_of: Callable[[str], Family], place: int) -> None:
    family = family_of("qwen3_5")
    data = family.path.read_bytes()
    lab.open(family.path)
    (old,) = struct.unpack_from("<I", data, place)
    edits = list(enumerate(struct.pack("<I", (old + 1_000_000) & 0xFFFFFFFF), place))
    with pytest.raises(BundleError):
        lab.ask("mutated", edits=edits, size=len(data), texts=TEXTS)


@pytest.mark.parametrize("name", ["smollm_lacking", "llama3_fused", "llama_lacking", "gemma_fused"])
def test_bytes_without_tokens_lead_nowhere(lab: TextLab, family_of: Callable[[str], Family], name: str) -> None:
    """No bytes at all, each of them alone, and an unknown token that is none, the last or the first."""
    data = family_of(name).path.read_bytes()
    lab.open(family_of(name).path)
    none, last = b"\xff" * 4, struct.pack("<I", struct.unpack_from("<I", data, VOCABULARY)[0] - 1)
    # A token of SentencePiece's that is half a character has to be that of a byte.
    lowest = 256 if family_of(name).oracle.model.byte_fallback is False else 128
    for unknown in (none, bytes(4), last):
        for first, many in ((0, lowest), *((byte, 1) for byte in range(lowest))):
            edits = [*enumerate(none * many, HEADER + 4 * first), *enumerate(unknown, UNKNOWN)]
            assert lab.ask("mutated", edits=edits, size=len(data), texts=TEXTS) > 0


@pytest.mark.parametrize("name", ["qwen3_5", "llama_always"])
def test_a_file_of_version_1_has_a_token_for_each_byte(
    lab: TextLab, family_of: Callable[[str], Family], name: str
) -> None:
    data = family_of(name).path.read_bytes()
    lab.open(family_of(name).path)
    former = [(8, 1), (12, data[12] & 63), *enumerate(bytes(4), UNKNOWN)]
    assert lab.ask("mutated", edits=former, size=len(data), texts=TEXTS) > 0
    a_byte_less = enumerate(b"\xff" * 4, HEADER + 4 * 65)
    for edits in ([*former, *a_byte_less], [*former, (UNKNOWN, 1)], [*former, (12, data[12] | 64)], [(8, 3)], [(8, 0)]):
        with pytest.raises(BundleError):
            lab.ask("mutated", edits=edits, size=len(data), texts=TEXTS)


def test_a_file_that_is_none_is_refused(lab: TextLab, tmp_path: Path) -> None:
    for content in (b"", b"{}", b"bsptok\0\0", bytes(4096)):
        (tmp_path / "tokenizer.bin").write_bytes(content or b"\n")
        with pytest.raises(BundleError, match=r"tokenizer\.bin"):
            lab.open(tmp_path / "tokenizer.bin")
