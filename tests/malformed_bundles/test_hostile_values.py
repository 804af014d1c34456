# SPDX-License-Identifier: Apache-2.0
"""Values of the wrong kind or size in a bundle whose hashes fit: readers and PersonalModel raise a BespokeError."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke import BespokeError, PersonalModel
from bespoke.bundle.manifest_document import read_manifest
from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.bundle.target_records import GraphRecord
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_from_file import tokenizer_of
from bespoke.errors import BundleError, ModelError
from bespoke.reference.evaluate import evaluate
from bespoke.reference.generate import generate
from bespoke.reference.graph_function import GraphFunction
from bespoke.reference.train import train
from tests.malformed_bundles.graph_record import RECORD
from tests.support.bundles import stories_bundle
from tests.support.checks import count, new_seed, record_check
from tests.unit.bundle.example import replace_manifest
from tests.unit.personal_model.tiny import add_numbers, number_rows, tiny_bundle, tiny_folder

__all__ = ["stories_bundle", "tiny_bundle", "tiny_folder"]

BAD: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    10**9,
    2**31,
    2**53,
    2**63 - 1,
    2**63,
    10**30,
    -(2**63),
    1.5,
    1e308,
    -1e308,
    True,
    False,
    None,
    "",
    "x",
    "\0",
    "../../etc/passwd",
    "a" * 300,
    [],
    {},
    [[]],
    [0] * 5,
    {"a": 1},
    "float32",
    "int64",
    "arena",
    "weight",
)
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "uint8": torch.uint8,
    "int64": torch.int64,
    "int32": torch.int32,
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def changed(data: bytes, numbers: random.Random) -> tuple[bytes, object]:
    """The document with one value gone, copied from elsewhere, replaced by a number next to it, or by something else; and where."""
    document = json.loads(data)
    paths = list(places(document))
    path = numbers.choice(paths)
    holder, old = at(document, path[:-1]), at(document, path)
    match numbers.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[path[-1]]
        case 1:
            holder[path[-1]] = copy.deepcopy(at(document, numbers.choice(paths)))
        case 2 if type(old) in (int, float):
            holder[path[-1]] = numbers.choice((old + 1, old - 1, old * 2, -old, old * 10**6, 0))
        case _:
            holder[path[-1]] = numbers.choice(BAD)
    return json.dumps(document).encode(), path


def zeros(record: GraphRecord) -> list[torch.Tensor]:
    return [torch.zeros(spec.shape, dtype=DTYPES[spec.dtype]) for spec in record.inputs]


class Sources:
    """The documents of a bundle, and what reads and uses each."""

    def __init__(self, bundle: Bundle, manifest: bytes) -> None:
        self.manifest = manifest
        self.graphs = [(record, bundle.read(record.file)) for record in bundle.manifest.graphs]
        tokenizer = tokenizer_of(bundle.manifest.text, bundle.read)
        assert tokenizer is not None
        self.tokenizer = tokenizer.files()["tokenizer.json"]

    def draw(self, numbers: random.Random) -> tuple[str, object, Callable[[], object]]:
        match numbers.randrange(3):
            case 0:
                data, what = changed(self.manifest, numbers)

                def read() -> None:
                    manifest = read_manifest(data)
                    manifest.model.config.adapter_shapes(manifest.lora.settings)

                return "manifest", what, read
            case 1:
                record, program = numbers.choice(self.graphs)
                data, what = changed(program, numbers)
                return "program", (record.name, what), lambda: GraphFunction(data, record)(*zeros(record))
        data, what = changed(self.tokenizer, numbers)

        def use() -> None:
            tokenizer = Tokenizer.from_bytes(data)
            tokenizer.stream(tokenizer.encode("Once upon a time"))(1)

        return "tokenizer", what, use


def test_documents_with_a_wrong_value_are_taken_or_refused(stories_bundle: Path) -> None:
    seed = new_seed()
    numbers = random.Random(seed)
    with read_bundle(stories_bundle) as bundle:
        sources = Sources(bundle, (stories_bundle / "manifest.json").read_bytes())
    refused: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for _ in range(count(20_000)):
        kind, what, use = sources.draw(numbers)
        tried[kind] += 1
        try:
            use()
        except BespokeError as error:
            refused[kind] += all((error.subject, error.got, error.expected, error.next_step))
        except BaseException as error:
            error.add_note(f"{kind}: {what}")
            raise
    assert all(refused[kind] > tried[kind] // 3 for kind in tried)
    record_check(
        "documents of a bundle with a wrong value, on torch",
        {
            **{f"{kind}s": number for kind, number in sorted(tried.items())},
            "refused by us": refused.total(),
            "raw errors": 0,
        },
        seed,
    )


def damage(bundle: Path, numbers: random.Random) -> object:
    """A wrong value in one file, hashes that fit, and where it is."""
    document = json.loads((bundle / "manifest.json").read_bytes())
    name = numbers.choice([name for name in document["files"] if name.endswith((".json", ".safetensors"))])
    path = bundle / name
    data = path.read_bytes()
    what: object
    if name.endswith(".json"):
        data, what = changed(data, numbers)
    else:
        end = 8 + int.from_bytes(data[:8], "little")
        if numbers.random() < 0.5 or end == len(data):
            header, what = changed(data[8:end], numbers)
            header = header.ljust(end - 8)
            data = len(header).to_bytes(8, "little") + header + data[end:]
        else:
            what = numbers.randrange(end, len(data))
            data = data[:what] + bytes([numbers.choice((0, 127, 128, 255))]) * 8 + data[what + 8 :]
    path.write_bytes(data)
    document["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    replace_manifest(bundle, json.dumps(document).encode())
    return name, what


def use_all(bundle: Path, state: Path, out: Path) -> None:
    with PersonalModel.open(bundle, state) as model:
        add_numbers(model)
        model.export_adapter(out, base=True)
        model.rollback()
    with read_bundle(bundle) as opened:
        train(opened, user_rows=number_rows(), seed=1, steps=1)
        evaluate(opened, number_rows())
        list(generate(opened, [1, 2, 3], max_tokens=2))


@pytest.mark.slow
def test_a_bundle_with_a_wrong_value_is_used_or_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    seed = new_seed()
    numbers = random.Random(seed)
    ends: Counter[str] = Counter()
    for turn in range(count(1000)):
        place = tmp_path / str(turn)
        bundle = shutil.copytree(tiny_bundle, place / "a.bundle")
        what = damage(bundle, numbers)
        try:
            use_all(bundle, place / "state", place / "out")
            ends["used"] += 1
        except BespokeError:
            ends["refused by us"] += 1
        except Exception as error:
            error.add_note(f"{what}")
            raise
        shutil.rmtree(place)
    record_check(
        "bundles with a wrong value in a file, through PersonalModel and the reference", {**ends, "raw errors": 0}, seed
    )


# ---- what was found so -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("dtype", 0, "dtype number 0"),
        ("dtype", 63, "dtype number 63"),
        ("sizes", [{"as_int": -4}], r"the shape \[-4\]"),
    ],
)
def test_a_program_of_an_unknown_dtype_or_a_negative_size_is_refused(
    graph: bytes, field: str, value: Any, said: str
) -> None:
    document = json.loads(graph)
    values = document["graph_module"]["graph"]["tensor_values"]
    values["v1"].update({field: value})
    with pytest.raises(BundleError, match=said) as refused:
        GraphFunction(json.dumps(document).encode(), RECORD)
    assert "v1" in refused.value.subject


def test_a_tokenizer_that_makes_its_library_panic_is_refused(stories: Path) -> None:
    document = json.loads((stories / "tokenizer.json").read_bytes())
    document["model"]["continuing_subword_prefix"] = "a" * 300
    with pytest.raises(ModelError, match="Panic"):
        Tokenizer.from_bytes(json.dumps(document).encode())
