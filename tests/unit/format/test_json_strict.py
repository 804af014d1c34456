# SPDX-License-Identifier: Apache-2.0
"""JSON from outside has one meaning and bounded cost."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bespoke.errors import BundleError, PlanError
from bespoke.format.json_strict import dumps_canonical, loads_strict
from tests.unit.format.ambiguous import AMBIGUOUS

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def loads(data: bytes, **caps: int) -> object:
    return loads_strict(data, subject="document", error=BundleError, **{"max_bytes": 10_000, **caps})


@given(VALUES)
def test_reads_what_the_standard_library_writes(value: object) -> None:
    try:
        expected = json.dumps(value, allow_nan=False).encode()
        value_bytes = dumps_canonical(value)
    except UnicodeEncodeError:  # half a surrogate pair
        return
    assert loads(value_bytes) == value
    if b"\\ud" not in expected:
        assert loads(expected) == json.loads(expected)


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    assert (
        dumps_canonical({"b": 1, "a": [1.5, None]})
        == dumps_canonical({"a": [1.5, None], "b": 1})
        == (b'{"a":[1.5,null],"b":1}\n')
    )


@pytest.mark.parametrize(("data", "what"), AMBIGUOUS)
def test_refuses_what_readers_could_read_differently(data: bytes, what: str) -> None:
    with pytest.raises(BundleError) as caught:
        loads(data, max_items=1000)
    assert what in caught.value.got
    assert caught.value.subject == "document"


def test_depth_is_counted_exactly_and_not_inside_texts() -> None:
    assert loads(b"[" * 32 + b"]" * 32)
    assert loads(b'["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\\"{{{{"]')
    assert loads(b'[{"a": [1, {"b": []}]}]', max_depth=5)
    with pytest.raises(BundleError, match="deeper than 4"):
        loads(b'[{"a": [1, {"b": []}]}]', max_depth=4)


def test_caps_hold_before_anything_is_parsed() -> None:
    with pytest.raises(BundleError, match="10001 bytes"):
        loads(b" " * 10_001)
    with pytest.raises(BundleError, match="items"):
        loads(b"[" + b"1," * 1000 + b"1]", max_items=1000)
    hostile = b"[" * 4_000_000
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(BundleError, match="deeper"):
        loads(hostile, max_bytes=2**23, max_items=2**23)
    assert time.perf_counter() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 8 * len(hostile)
    tracemalloc.stop()


def test_raises_the_callers_error() -> None:
    with pytest.raises(PlanError, match="document of a plan"):
        loads_strict(b"[", subject="document of a plan", error=PlanError, max_bytes=10)
