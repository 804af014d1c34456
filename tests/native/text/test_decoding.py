# SPDX-License-Identifier: Apache-2.0
"""Tokens to text, at once and token by token."""

from __future__ import annotations

import codecs
import json
import random
import re

from tokenizers.decoders import DecodeStream

from tests.native.text.lab import TextLab
from tests.support.checks import count, full, new_seed
from tests.support.strings import random_text
from tests.support.tokenizer_families import Family
from tests.support.trained_tokenizers import pages

STREAMS = 20_000
# A replacement character for each byte, as the package decodes a byte token that belongs to no character.
codecs.register_error("each_byte", lambda error: ("\ufffd" * (error.end - error.start), error.end))  # type: ignore[attr-defined]


def texts_for(family: Family, seed: int, number: int) -> list[str]:
    chance = random.Random(seed)
    return [random_text(chance, list(family.added.values())) for _ in range(number)]


def test_tokens_of_texts(lab: TextLab, family: Family) -> None:
    seed = new_seed()
    texts = [*pages(), *texts_for(family, seed, count(20_000))]
    for template in (False, True):
        tokens = family.all_tokens(texts, template)
        for skip in (False, True):
            expected = family.oracle.decode_batch(tokens, skip_special_tokens=skip)
            wrong = [pair for pair in zip(expected, lab.decode(tokens, skip), strict=True) if pair[0] != pair[1]]
            assert wrong[:3] == []


def test_random_tokens(lab: TextLab, family: Family) -> None:
    """Broken characters, ids beyond the vocabulary, special tokens anywhere."""
    seed = new_seed()
    chance = random.Random(seed)
    size = family.oracle.get_vocab_size()
    bytes_first = [*range(min(300, size)), *family.added, size, size + 7]
    sequences = [
        [
            chance.choice(bytes_first) if chance.random() < 0.6 else chance.randrange(size + 3)
            for _ in range(chance.randint(0, 20))
        ]
        for _ in range(count(100_000))
    ]
    sequences += [[token] for token in (range(size) if full() or size < 2000 else chance.sample(range(size), 2000))]
    for skip in (False, True):
        expected = family.oracle.decode_batch(sequences, skip_special_tokens=skip)
        wrong = [one for one in zip(sequences, expected, lab.decode(sequences, skip), strict=True) if one[1] != one[2]]
        assert wrong[:3] == []
    family.record("decoding of random tokens", {"sequences": len(sequences)}, seed)


def test_a_stream_says_what_the_packages_stream_says(lab: TextLab, family: Family) -> None:
    """At every token the package's text is a part of the core's, which gives a character as soon as it is whole; both end alike."""
    seed = new_seed()
    texts = texts_for(family, seed, count(STREAMS))
    tokens = [ids for ids in family.all_tokens(texts) if "\ufffd" not in family.oracle.decode(ids)]
    for ids, pieces in zip(tokens, lab.stream(tokens), strict=True):
        stream, theirs, ours = DecodeStream(skip_special_tokens=True), "", ""
        for token, piece in zip(ids, pieces, strict=False):
            theirs += stream.step(family.oracle, token) or ""
            ours += piece
            assert ours.startswith(theirs), (ids, theirs, ours)
        assert ours == theirs, ids
        assert pieces[-1] == "", ids
    family.record("streams of texts", {"texts": len(tokens)}, seed)


def test_a_stream_behind_a_prompt_keeps_its_first_space(lab: TextLab, family: Family) -> None:
    prompt, rest = family.tokens("Once upon"), family.tokens(" a café 🙂 time")
    stream = DecodeStream(ids=prompt, skip_special_tokens=True)
    theirs = "".join(stream.step(family.oracle, token) or "" for token in rest)
    (pieces,) = lab.stream([rest], at_start=False)
    assert "".join(pieces) == theirs


def test_streams_of_random_tokens_joined(lab: TextLab, family: Family) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    size = family.oracle.get_vocab_size()

    def token() -> int:
        return chance.randrange(min(300, size)) if chance.random() < 0.6 else chance.randrange(size + 3)

    sequences = [[token() for _ in range(chance.randint(0, 20))] for _ in range(count(STREAMS))]
    byte_fallback = json.loads(family.data)["model"].get("byte_fallback")
    for ids, pieces in zip(sequences, lab.stream(sequences), strict=True):
        if byte_fallback:
            # The package makes a whole run of byte tokens U+FFFD where a part of it is broken: too late for a stream.
            expected = family.without_stripped(by_bytes(family, ids))
        else:
            expected = family.oracle.decode(ids, skip_special_tokens=True)
        assert "".join(pieces) == expected, ids


def by_bytes(family: Family, ids: list[int]) -> str:
    """What SentencePiece's tokens are, each stretch of byte tokens decoded by Python."""
    text, run = "", b""
    specials = {token_id for token_id, token in family.oracle.get_added_tokens_decoder().items() if token.special}
    for token_id in ids:
        token = family.oracle.id_to_token(token_id)
        if token is None or token_id in specials:
            continue
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            run += bytes([int(token[3:5], 16)])
            continue
        text, run = text + run.decode(errors="each_byte") + token.replace("▁", " "), b""
    return text + run.decode(errors="each_byte")
