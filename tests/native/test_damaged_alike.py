# SPDX-License-Identifier: Apache-2.0
"""Both readers over the same damage: manifests, headers of tensor files and plans are refused for the same reason."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.manifest_document import read_manifest
from bespoke.bundle.reader import read_bundle
from bespoke.errors import BespokeError, BundleError, PlanError
from bespoke.format.tensors import tensors_from_buffer
from bespoke.plan.kinds import SECTIONS as SECTION_RULES
from bespoke.reference.code import read_code
from tests.native.damaged_bundles import bundle, keys, reader
from tests.native.format_lab import CoreReader, code_document
from tests.support.bundles import stories_bundle
from tests.unit.bundle.example import replace_manifest
from tests.unit.plan.broken import Sample

__all__ = ["bundle", "keys", "reader", "stories_bundle"]


SECTIONS = tuple(SECTION_RULES)


def damaged(data: bytes, numbers: random.Random) -> bytes:
    """One to three small changes of bytes or of tokens of JSON."""
    for _ in range(numbers.randint(1, 3)):
        at = numbers.randrange(len(data))
        match numbers.randrange(5):
            case 0:
                data = data[:at] + bytes([data[at] ^ 1 << numbers.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[at + numbers.randint(1, 8) :]
            case 2:
                data = (
                    data[:at]
                    + numbers.choice([b"0", b"-", b"]", b'"', b"{}", b"null", b"1e9", b"\xff", b"9" * 19])
                    + data[at:]
                )
            case 3:
                digits = [i for i in range(at, min(at + 400, len(data))) if chr(data[i]).isdigit()]
                if digits:
                    data = data[: digits[0]] + str(numbers.randrange(100)).encode() + data[digits[0] + 1 :]
            case 4:
                other, length = numbers.randrange(len(data)), numbers.randint(1, 60)
                data = data[:at] + data[other : other + length] + data[at:]
    return data


def agree(
    python: Callable[[], object], core: Callable[[], object], errors: tuple[type[BespokeError], ...]
) -> bool | None:
    """Whether both took it; where only Python does, None."""
    try:
        python()
        taken = True
    except errors:
        taken = False
    try:
        core()
    except errors:
        return None if taken else False
    assert taken, "the core took what Python refuses"
    return True


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_damaged_manifests_and_headers_are_refused_alike(
    reader: CoreReader, bundle: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The core may be stricter where a number does not fit its records, and nowhere else."""
    numbers = random.Random(count)
    manifest = (bundle / "manifest.json").read_bytes()
    header = (bundle / "weights/block_00.safetensors").read_bytes()
    end = header.rindex(b"}", 0, 16384) + 1
    for kind in ("manifest", "tensors"):
        results = []
        for _ in range(count):
            if kind == "manifest":
                data = damaged(manifest, numbers)
                results.append(agree(partial(read_manifest, data), partial(reader.manifest, data), (BundleError,)))
            else:
                data = damaged(header[:end], numbers).ljust(16384, b" ")[:16384] + header[16384:]
                python = partial(tensors_from_buffer, memoryview(data), "file")
                results.append(agree(python, partial(reader.tensors, data), (BundleError,)))
        assert results.count(False) > count // 2
        assert results.count(None) <= count // 50
        with capsys.disabled():
            print(
                f"\n{kind}: {count} damaged, {results.count(False)} refused by both, {results.count(None)} by the core alone",
                end="",
            )


def changed(document: dict[str, Any], numbers: random.Random) -> None:
    """Something else in a plan whose form stays sound: ids, ranges, orders, places, shapes."""
    code = document["sections"][numbers.choice(sorted(document["sections"]))]
    at = numbers.randrange(len(code))
    calls = [instruction for instruction in code if instruction["op"] == "call"]
    others = [instruction for instruction in code if instruction["op"] in ("store", "emit", "zero", "free")]
    match numbers.randrange(9):
        case 0:
            del code[at]
        case 1:
            code.insert(at, copy.deepcopy(numbers.choice(code)))
        case 2:
            other = numbers.randrange(len(code))
            code[at], code[other] = code[other], code[at]
        case 3 | 4:
            call = numbers.choice(calls)
            operand = numbers.choice([*call["operands"], *(result["to"] for result in call["results"])])
            place = numbers.randrange(len(operand))
            if len(operand) == 1 and numbers.random() < 0.5:
                operand += [numbers.randrange(3), numbers.randrange(1, 5)]
            else:
                operand[place] = max(0, operand[place] + numbers.choice([-2, -1, 1, 2]))
        case 5:
            call = numbers.choice(calls)
            numbers.choice(call["results"])["how"] = numbers.choice(["make", "into", "add_to"])
        case 6:
            value = numbers.choice(document["values"])
            value["place"] = copy.deepcopy(numbers.choice(document["values"])["place"])
        case 7:
            value = numbers.choice(document["values"])
            field = numbers.choice(["role", "lifetime", "dtype", "shape"])
            value[field] = copy.deepcopy(numbers.choice(document["values"])[field])
        case 8 if others:
            instruction = numbers.choice(others)
            field = {"store": "state", "emit": "source", "zero": "value", "free": "value"}[instruction["op"]]
            instruction[field] = numbers.randrange(len(document["values"]))


def either(read: Callable[[], Any]) -> tuple[Any, PlanError | None]:
    try:
        return read(), None
    except PlanError as error:
        return None, error


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_plans_that_break_any_rule_are_refused_for_the_same_reason(
    reader: CoreReader,
    stories_bundle: Path,
    count: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = random.Random(count)
    sample = Sample()
    with read_bundle(stories_bundle) as whole:
        large = json.loads(whole.read(whole.manifest.methods[0].plans[0].file)), whole.manifest.graphs
    large[0]["sections"] = {name: large[0]["sections"][name] for name in SECTIONS if name in large[0]["sections"]}
    reasons: Counter[str] = Counter()
    for turn in range(count):
        document, graphs = large if turn % 10 == 0 else (sample.document, sample.draft.graphs)
        document = copy.deepcopy(document)
        changed(document, numbers)
        data = json.dumps(document).encode()
        code, reason = either(lambda: code_document(read_code(data, "plan", graphs), data))  # noqa: B023
        ours, our_reason = either(lambda: reader.plan(data, graphs))  # noqa: B023
        assert (our_reason and our_reason.subject) == (reason and reason.subject), f"{our_reason}\n{reason}"
        assert ours == code
        reasons["".join(c for c in our_reason.got if not c.isdigit()) if our_reason else "sound"] += 1
    with capsys.disabled():
        print(
            f"\nplans changed {count} times: {reasons['sound']} sound, the others refused for {len(reasons) - 1} reasons"
        )
    assert len(reasons) > 15


@pytest.mark.slow
def test_every_byte_of_the_manifest_flipped_under_a_sum_that_fits(
    reader: CoreReader, bundle: Path, tmp_path: Path
) -> None:
    """Refused by both or taken by both: hashes of files included."""
    whole = (bundle / "manifest.json").read_bytes()
    both = 0
    for position in range(len(whole)):
        replace_manifest(
            bundle, whole[:position] + bytes([whole[position] ^ (1 << position % 8)]) + whole[position + 1 :]
        )

        def python() -> None:
            with read_bundle(bundle) as opened_bundle:
                opened_bundle.verify_files()

        both += agree(python, lambda: reader.bundle(bundle, files=["*"]), (BundleError,)) is True
    assert both < len(whole) // 2
