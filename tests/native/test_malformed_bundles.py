# SPDX-License-Identifier: Apache-2.0
"""What tests/malformed_bundles does to the Python reader, done to the core's: refused alike, or read alike, and never a crash."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bespoke.bundle.archive import pack
from bespoke.bundle.manifest_document import read_manifest
from bespoke.bundle.reader import open_bundle
from bespoke.bundle.signature import generate_key, sign_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BespokeError, BundleError, PlanError, SignatureError
from bespoke.format.tensors import tensors_from_buffer
from bespoke.reference.code import read_code
from tests.malformed_bundles import hostile
from tests.malformed_bundles.flips import flips, header_bytes
from tests.native.format_lab import BUILDS, CoreReader, build_of, code_document, refused
from tests.support.bundles import stories_bundle
from tests.unit.bundle.example import replace_manifest, write_example
from tests.unit.bundle.manifests import HOSTILE_NAMES
from tests.unit.plan.broken import Sample

__all__ = ["stories_bundle"]

LICENCE = hostile.LICENCE
SECTIONS = ("train_step", "micro_step", "apply_step", "finish", "evaluate_step", "prefill", "decode")
KINDS = [
    "weights/block_00.safetensors",
    "data/train.safetensors",
    "graphs/scale.json",
    "plans/mesp_16.json",
    "licences/LICENSE.txt",
]


@pytest.fixture(scope="module", params=BUILDS)
def reader(request: pytest.FixtureRequest) -> Iterator[CoreReader]:
    with CoreReader(build_of(request) / "tests" / "format_lab") as lab:
        yield lab


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    return generate_key()


@pytest.fixture
def bundle(tmp_path: Path, keys: tuple[bytes, bytes]) -> Path:
    """A sound, signed bundle in a folder that holds nothing else."""
    folder = write_example(tmp_path / "here" / "a.bundle", graph=b'{"not": "traced"}')
    sign_bundle(folder, keys[0])
    return folder


def opened(reader: CoreReader, given: Path, **values: Any) -> BespokeError:
    """The error of opening or, at the latest, of using the licence."""
    error = refused(reader, "bundle", given, **{"files": [LICENCE], **values})
    assert isinstance(error, BundleError), repr(error)
    return error


def test_the_bundle_without_a_trap_is_read_from_folder_and_zips(
    reader: CoreReader, bundle: Path, tmp_path: Path, keys: tuple[bytes, bytes]
) -> None:
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    weights = ["weights/block_00.safetensors", "weights/embedding.safetensors"]
    whole = reader.bundle(bundle, files=["*"], tensors=weights, pin=pin.upper(), key=list(keys[1]))
    assert len(whole["files"]) == len(whole["manifest"]["files"])
    pack(bundle, tmp_path / "zips")
    hostile.ours(bundle, tmp_path / "a.zip")
    for path in (tmp_path / "zips", tmp_path / "a.zip"):
        assert reader.bundle(path, files=["*"], tensors=weights, pin=pin, key=list(keys[1])) == whole
    (tmp_path / "link").symlink_to(bundle)  # the folder itself may be one
    assert reader.bundle(tmp_path / "link", files=["*"], tensors=weights) == whole


@pytest.mark.parametrize("trap", hostile.TRAPS)
def test_a_folder_with_traps_is_refused(
    reader: CoreReader, bundle: Path, tmp_path: Path, trap: Callable[[Path, Path], None]
) -> None:
    trap(bundle, tmp_path / "outside")
    opened(reader, bundle)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_climbs_is_refused(reader: CoreReader, bundle: Path, name: str) -> None:
    def change(document: dict[str, Any]) -> None:
        document["licences"] = [name]
        document["files"][name] = document["files"].pop(LICENCE)

    hostile.edit(bundle, change)
    assert "manifest.json" in str(opened(reader, bundle))


def test_asking_for_an_unlisted_name_reads_nothing(reader: CoreReader, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "here" / "secret").write_text("secret")
    for name in (
        "../secret",
        str(tmp_path / "here" / "secret"),
        "manifest.json",
        "manifest.sha256",
        "signature",
        "licences",
        "",
        "a\0",
    ):
        assert "does not list" in opened(reader, bundle, files=[name]).got


@pytest.mark.parametrize("data", [data for data, _ in hostile.DOCUMENTS])
def test_a_manifest_that_costs_or_confuses_is_refused(reader: CoreReader, bundle: Path, data: bytes) -> None:
    replace_manifest(bundle, data)
    assert "manifest.json" in opened(reader, bundle).subject


def test_huge_counts_and_sizes_are_refused(reader: CoreReader, bundle: Path) -> None:
    document = json.loads((bundle / "manifest.json").read_bytes())
    record = document["files"][LICENCE]
    for change in (
        {"files": {**document["files"], **{f"f/{index}": record for index in range(20_000)}}},
        {"methods": [{**document["methods"][0], "name": str(index)} for index in range(100)]},
        {"licences": [LICENCE] * 100},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**63}}},
        {"files": {**document["files"], LICENCE: {**record, "size": 2**40}}},
        {"context_length": 10**19},
        {"context_length": 10**20},
    ):
        replace_manifest(bundle, json.dumps({**document, **change}).encode())
        opened(reader, bundle)


def test_pin_and_key_that_do_not_fit_are_refused_as_such(reader: CoreReader, bundle: Path) -> None:
    other = list(generate_key()[1])
    for values in ({"pin": "0" * 64}, {"pin": "x"}, {"key": other}, {"key": [0] * 32}):
        assert type(opened(reader, bundle, **values)) is SignatureError
    (bundle / "signature").unlink()
    assert opened(reader, bundle, key=other).got == "no signature"
    reader.bundle(bundle)


# ---- flipped, cut and added bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_a_flipped_byte_of_a_listed_file_is_refused_by_its_hash(reader: CoreReader, bundle: Path, name: str) -> None:
    size = header_bytes(bundle / name)
    for _ in flips(bundle / name, range(0, size, max(1, size // 12))):
        error = opened(reader, bundle, files=[name])
        assert error.subject.endswith(name)
        assert "sha256" in error.got


@pytest.mark.parametrize(("name", "step"), [("manifest.json", 97), ("manifest.sha256", 5), ("signature", 3)])
def test_a_flipped_byte_in_an_unlisted_file_is_refused(
    reader: CoreReader, bundle: Path, name: str, step: int, keys: tuple[bytes, bytes]
) -> None:
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    for _ in flips(bundle / name, range(0, (bundle / name).stat().st_size, step)):
        opened(reader, bundle, key=list(keys[1]))
        if name != "signature":
            opened(reader, bundle, pin=pin)
            opened(reader, bundle)


@pytest.mark.parametrize("name", [*KINDS, "manifest.json", "manifest.sha256", "signature"])
def test_a_cut_longer_or_missing_file_is_refused(
    reader: CoreReader, bundle: Path, name: str, keys: tuple[bytes, bytes]
) -> None:
    path = bundle / name
    whole = path.read_bytes()
    for data in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"\0", None):
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        error = opened(reader, bundle, key=list(keys[1]))
        assert ("signature" if name == "manifest.json" and data is not None else name) in error.subject


# ---- zips ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", hostile.ZIPS)
def test_a_zip_of_another_form_is_refused(reader: CoreReader, bundle: Path, tmp_path: Path, kind: str) -> None:
    hostile.ZIPS[kind](bundle, tmp_path / "a.zip")
    opened(reader, tmp_path / "a.zip")


def test_flipped_and_cut_bytes_of_a_zip_outside_its_files_are_refused(
    reader: CoreReader, bundle: Path, tmp_path: Path
) -> None:
    hostile.ours(bundle, tmp_path / "a.zip")
    path = tmp_path / "a.zip"
    whole = path.read_bytes()
    directory = int.from_bytes(whole[-6:-2], "little")
    places = [*range(34), *range(100, 16000, 997), *range(directory, len(whole), 7), len(whole) - 1]
    for _ in flips(path, iter(places)):
        opened(reader, path)
    for size in {*range(0, len(whole), 20011), len(whole) - 1, len(whole) - 21, len(whole) - 22}:
        path.write_bytes(whole[:size])
        opened(reader, path)


def test_a_zip_of_other_weights_is_refused_by_hash(reader: CoreReader, bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "zips"
    pack(bundle, folder)
    path = bundle / "weights/block_00.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    write_zip(
        folder / "weights.zip",
        [(name, bundle / name) for name in ("weights/block_00.safetensors", "weights/embedding.safetensors")],
    )
    assert "sha256" in opened(reader, folder, tensors=["weights/block_00.safetensors"]).got
    reader.bundle(folder, tensors=["weights/embedding.safetensors"])
    (folder / "weights.zip").unlink()
    assert "no such entry" in opened(reader, folder).got


# ---- both readers over the same damage -----------------------------------------------------------------------------------


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
    with open_bundle(stories_bundle) as whole:
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
            with open_bundle(bundle) as opened_bundle:
                opened_bundle.verify_files()

        both += agree(python, lambda: reader.bundle(bundle, files=["*"]), (BundleError,)) is True
    assert both < len(whole) // 2


@pytest.mark.slow
def test_a_folder_of_very_many_files_is_refused_while_counting(reader: CoreReader, bundle: Path) -> None:
    hostile.many_files(bundle)
    assert "more than 16384 files" in opened(reader, bundle).got
    shutil.rmtree(bundle / "many")
    for index in range(16):
        os.close(os.open(bundle / f"stranger_{index}", os.O_CREAT | os.O_WRONLY))
    assert "does not list" in opened(reader, bundle).got
