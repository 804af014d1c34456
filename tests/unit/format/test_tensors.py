# SPDX-License-Identifier: Apache-2.0
"""Weight files: what we write the safetensors package reads, and the other way round; views cost no copy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from bespoke.errors import BundleError, StateError
from bespoke.format.tensors import PAGE_BYTES, TensorWriter, map_tensors, write_arrays, write_tensors
from tests.unit.format.tensor_files import ARRAYS, LENGTHS_TOO_LARGE, LYING_HEADERS, craft, entry


def test_the_safetensors_package_reads_what_we_write(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS)
    theirs = safetensors.numpy.load_file(tmp_path / "a")
    assert theirs.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert theirs[name].dtype == array.dtype
        np.testing.assert_array_equal(theirs[name], array)


def test_we_read_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    safetensors.numpy.save_file(ARRAYS, tmp_path / "a", metadata={"format": "np"})
    ours = map_tensors(tmp_path / "a")
    assert ours.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(ours[name], array)


def test_data_begins_on_a_page_and_wide_types_come_first(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS)
    data = (tmp_path / "a").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % PAGE_BYTES == 0
    header = json.loads(data[8 : 8 + length])
    by_offset = sorted(header, key=lambda name: header[name]["data_offsets"])
    widths = [{"I64": 8, "F32": 4, "I32": 4, "F16": 2, "U8": 1}[header[name]["dtype"]] for name in by_offset]
    assert widths == sorted(widths, reverse=True)
    map_tensors(tmp_path / "a", page_aligned=True)


def test_bytes_do_not_depend_on_the_order_in_which_tensors_are_given(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS)
    write_arrays(tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tensors_are_written_in_pieces_and_in_any_order(tmp_path: Path) -> None:
    pieces = [(name, a.dtype, a.shape, np.array_split(a, 2) if a.ndim else [a]) for name, a in ARRAYS.items()]
    write_tensors(tmp_path / "pieces", pieces)
    specs = {name: (a.dtype, a.shape) for name, a in ARRAYS.items()}
    with TensorWriter(
        tmp_path / "rows", specs
    ) as writer:  # codes and scales of a row together, as a converter has them
        for row in range(5):
            writer.write("q_proj.codes", ARRAYS["q_proj.codes"][row])
            writer.write("q_proj.scales", ARRAYS["q_proj.scales"][row])
        for name in ARRAYS.keys() - {"q_proj.codes", "q_proj.scales"}:
            writer.write(name, ARRAYS[name])
    write_arrays(tmp_path / "whole", ARRAYS)
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes() == (tmp_path / "rows").read_bytes()


def test_views_are_read_only_and_share_one_mapping(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS)
    views = map_tensors(tmp_path / "a")
    for view in views.values():
        assert not view.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            view.flags.writeable = True
    offset = views["tokens"].ctypes.data - views["input_norm"].ctypes.data
    assert 0 < abs(offset) < 200
    assert views["offsets"].ctypes.data % PAGE_BYTES % 4096 == 0


def test_an_unfinished_or_failed_file_does_not_stay(tmp_path: Path) -> None:
    with (
        pytest.raises(BundleError, match="too few values for tensor 'a'"),
        TensorWriter(tmp_path / "short", {"a": (np.float32, (2, 3))}) as writer,
    ):
        writer.write("a", np.zeros(3, np.float32))
    with pytest.raises(RuntimeError), TensorWriter(tmp_path / "failed", {"a": (np.float32, (1,))}):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("a", np.zeros(7, np.float32), "more values"),
        ("a", np.zeros(6, np.float64), "float64"),
        ("b", np.zeros(6, np.float32), "tensor 'b'"),
    ],
)
def test_the_writer_refuses_values_that_do_not_fit(tmp_path: Path, name: str, values: np.ndarray, what: str) -> None:
    with pytest.raises(BundleError, match=what), TensorWriter(tmp_path / "f", {"a": (np.float32, (2, 3))}) as writer:
        writer.write(name, values)


def test_the_writer_refuses_types_that_no_reader_takes(tmp_path: Path) -> None:
    for dtype in (np.float64, np.int8, np.complex64, bool):
        with pytest.raises(BundleError, match="expected one of int64, float32"):
            write_arrays(tmp_path / "f", {"a": np.zeros(1, dtype)})
    with pytest.raises(BundleError, match="twice"):
        write_tensors(tmp_path / "f", [("a", np.float32, (0,), ()), ("a", np.float32, (0,), ())])


@pytest.mark.parametrize(("header", "what"), LYING_HEADERS)
def test_refuses_headers_that_lie(tmp_path: Path, header: bytes | dict[str, object], what: str) -> None:
    path = craft(tmp_path / "f", header, bytes(8))
    with pytest.raises(BundleError) as caught:
        map_tensors(path)
    assert what in str(caught.value)
    assert str(path) in caught.value.subject


def test_reads_the_header_of_a_file_that_mlx_wrote(tmp_path: Path) -> None:
    path = craft(tmp_path / "f", {"__metadata__": None, "a": entry()}, bytes(8))
    assert map_tensors(path)["a"].tolist() == [0, 0]


@pytest.mark.parametrize("length", LENGTHS_TOO_LARGE)
def test_refuses_header_lengths_beyond_file_or_cap(tmp_path: Path, length: int) -> None:
    (tmp_path / "f").write_bytes(length.to_bytes(8, "little") + b'{"a":0}')
    with pytest.raises(BundleError):
        map_tensors(tmp_path / "f")
    with pytest.raises(StateError):
        map_tensors(tmp_path / "f", error=StateError)


def test_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "nothing").write_bytes(b"")
    for name in ("link", "nothing", "missing", ".", "/dev/null", "a\0b"):
        with pytest.raises(BundleError):
            map_tensors(tmp_path / name)


def test_data_off_the_page_is_refused_where_weights_must_be_mapped(tmp_path: Path) -> None:
    safetensors.numpy.save_file(ARRAYS, tmp_path / "a")
    with pytest.raises(BundleError, match="16384"):
        map_tensors(tmp_path / "a", page_aligned=True)
