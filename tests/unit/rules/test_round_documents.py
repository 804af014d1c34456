# SPDX-License-Identifier: Apache-2.0
"""Documents of rounds: what they hold to the bit, and how many bytes travel."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from bespoke.bundle.signature import generate_key, public_key_of, signed_document
from bespoke.errors import DataError
from bespoke.rules.federation import coefficients_text, rounded
from bespoke.rules.round_documents import DeviceDocument, Measurement, RoundDocument, RoundNumbers, RoundSpan


def document(**fields: object) -> RoundDocument:
    empty = {"taken": (), "snapshot": None, "rounds": (), "measure": None, "wait_seconds": 0.0, "done": False}
    return RoundDocument(task="words", **{**empty, **fields})  # type: ignore[arg-type]


def sent(one: RoundDocument, key: bytes) -> bytes:
    return signed_document(json.dumps(one.model_dump(mode="json"), separators=(",", ":")), key)


def test_coefficients_come_back_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    numbers = [rounded(x) for x in (*rng.normal(0, 1e-3, 200), 0.0, -1e-20, 3e30)]
    data = np.frombuffer(base64.b64decode(coefficients_text(numbers)), np.uint8).reshape(-1, 3)
    whole = np.concatenate([data, np.zeros((len(data), 1), np.uint8)], 1).reshape(-1).view(">f4")
    np.testing.assert_array_equal(whole, np.array(numbers, np.float32))
    with pytest.raises(DataError, match="float32"):
        coefficients_text([1e300])


def test_the_owner_of_the_public_key_can_check_an_answer() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key, _ = generate_key()
    answer = json.loads(sent(document(), key))
    public = Ed25519PublicKey.from_public_bytes(public_key_of(key))
    public.verify(bytes.fromhex(answer["signature"]), b"bespoke round document 1\0" + answer["payload"].encode())


def test_what_travels_is_small() -> None:
    """A device that missed 100 rounds of 16 directions, one that is up to date, and what both send."""
    key, _ = generate_key()
    rng = np.random.default_rng(0)
    missed = RoundSpan(
        first=901,
        count=100,
        directions=16,
        coefficients=coefficients_text(rng.normal(0, 1e-3, 1600).tolist()),
        guidance=None,
        half=False,
        adapter="ab" * 32,
    )
    last = missed.model_copy(update={"count": 1, "coefficients": coefficients_text(rng.normal(0, 1e-3, 16).tolist())})
    asked = Measurement(
        round=1001, first=3, count=1, coefficient=1.0, guidance_coefficient=0.0, files=(), adapter="ab" * 32
    )
    assert len(sent(document(rounds=(missed,), measure=asked, taken=(900,)), key)) <= 10_000
    assert len(sent(document(rounds=(last,), measure=asked, taken=(900,)), key)) <= 1_000

    def body(count: int) -> int:
        numbers = tuple(float(np.round(x * 1024) / 1024) for x in rng.normal(0, 1, count))
        numbers = (RoundNumbers(round=1000, first=0, numbers=numbers),)
        device = DeviceDocument(
            task="words", round=1000, adapter="ab" * 32, differs=False, measures=True, numbers=numbers
        )
        return len(device.model_dump_json())

    assert body(1) <= 1_000
    assert body(256) <= 8_000
