# SPDX-License-Identifier: Apache-2.0
"""Headers of GGUF files: as their owner's package reads them, and damaged ones end in an error at once."""

from __future__ import annotations

import random
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader

from bespoke.compiler.gguf.folder import write_model_folder
from bespoke.errors import BespokeError, ModelError
from bespoke.format.gguf_header import is_gguf, read_gguf_header
from bespoke.model.families import read_config
from bespoke.model.gguf.checkpoint import GgufCheckpoint
from tests.support.checks import count, new_seed
from tests.support.gguf_files import write_gguf
from tests.support.models import tiny_model

VOCABULARY = {
    "tokenizer__ggml__model": "gpt2",
    "tokenizer__ggml__pre": "smollm",
    "tokenizer__ggml__tokens": ["a", "b", "ab", "<|end|>"],
    "tokenizer__ggml__token_type": [1, 1, 1, 3],
    "tokenizer__ggml__merges": ["a b"],
    "tokenizer__ggml__eos_token_id": 3,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    model = tiny_model("llama", folder / "model", num_hidden_layers=1, intermediate_size=64)
    kinds = {1: Kind.F32, 2: Kind.Q4_0}
    return write_gguf(model, folder / "model.gguf", lambda name, shape: kinds[len(shape)], **VOCABULARY)


def test_it_reads_what_the_package_gguf_reads(path: Path) -> None:
    header, oracle = read_gguf_header(path), GGUFReader(path)
    fields = {name: field.contents() for name, field in oracle.fields.items() if not name.startswith("GGUF.")}
    found = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in header.metadata.items()
    }
    assert found == fields
    for tensor in oracle.tensors:
        one = header.tensors[tensor.name]
        shape = tuple(int(size) for size in reversed(tensor.shape))
        assert (one.kind, one.shape, one.offset) == (tensor.tensor_type, shape, tensor.data_offset)
    assert len(header.tensors) == len(oracle.tensors)


def read_all(path: Path, folder: Path) -> None:
    """What a build reads of a file."""
    header = read_gguf_header(path)
    folder.mkdir(exist_ok=True)
    write_model_folder(header, folder, tokenizer=True)
    checkpoint = GgufCheckpoint(header, read_config(folder))
    for name in checkpoint.names():
        for start, stop in checkpoint.row_ranges(name):
            checkpoint.int4_rows(name, start, stop)
            checkpoint.rows(name, start, stop)


def test_damaged_files_end_in_an_error_or_are_read(path: Path, tmp_path: Path) -> None:
    """Cut anywhere, or with bytes of the header changed; memory that a header asks for is never taken."""
    whole, seed = path.read_bytes(), new_seed()
    chance, refused = random.Random(seed), 0
    damaged = tmp_path / "damaged.gguf"
    limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + 2**29
    end = min(tensor.offset for tensor in read_gguf_header(path).tensors.values())
    rounds = count(5000)
    for _ in range(rounds):
        data = bytearray(whole)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(min(end, len(data)) or 1)
            data[place : place + 1] = bytes([chance.choice((0, 1, 255, chance.randrange(256)))])
        damaged.write_bytes(data)
        try:
            read_all(damaged, tmp_path / "made")
        except BespokeError:
            refused += 1
    assert refused > rounds / 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < limit


COUNT = 2**60


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        pytest.param(struct.pack("<QQ", COUNT, 0), "tensors", id="tensors"),
        pytest.param(struct.pack("<QQ", 0, COUNT), "fields of metadata", id="fields"),
        pytest.param(struct.pack("<QQQ", 0, 1, COUNT) + bytes(20), "a name of", id="a name"),
        pytest.param(struct.pack("<QQQ1sIIQ", 0, 1, 1, b"a", 9, 0, COUNT), "numbers in a", id="an array"),
        pytest.param(struct.pack("<QQQ1sIIQ", 0, 1, 1, b"a", 9, 8, COUNT), "texts in a", id="an array of texts"),
        pytest.param(
            struct.pack("<QQQ1sIIQ", 0, 1, 1, b"a", 9, 9, 1), "an array of the type 9", id="an array of arrays"
        ),
        pytest.param(struct.pack("<QQQ1sI", 0, 1, 1, b"a", 77) + bytes(9), "unknown type 77", id="an unknown type"),
        pytest.param(
            struct.pack("<QQQ1sIQQQIQ", 1, 0, 1, b"a", 2, COUNT, 2, 0, 0, 0)[:-8] + bytes(8), "of shape", id="a shape"
        ),
    ],
)
def test_counts_are_held_against_the_size_of_the_file(tail: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + tail)
    with pytest.raises(ModelError, match=words):
        read_gguf_header(path)


def test_other_files_are_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGU")
    assert not is_gguf(tmp_path / "a.gguf")
    assert not is_gguf(tmp_path)
    assert not is_gguf(tmp_path / "none.gguf")
