# SPDX-License-Identifier: Apache-2.0
"""The target's specs: its contract, what stands in the files as coremltools reads them, and that a wrong attribute shows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch

from bespoke import plugins
from bespoke.contracts import Target
from bespoke.errors import BespokeError, DataError, MissingDependency, Unsupported
from bespoke.graph.trace import Graph, TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.ops import HEAD_CHUNK_GRADIENT_INT4, LINEAR_TRANSPOSED_INT4
from bespoke.testing import check_target
from bespoke.testing.rig import Case
from bespoke.testing.target import CASES
from bespoke_plugins.targets.coreml.mil import Interpreter, read_spec
from bespoke_plugins.targets.coreml.mil.spec import NUMPY, Reference, Spec
from tests.apple.coreml.graphs import Recorded, distance, recorded
from tests.apple.coreml.vectors import write_vectors

pytestmark = pytest.mark.apple

FORMS = ("int32", "int8")
LARGEST_CONSTANT = 1024  # bytes


def target() -> Target:
    found = plugins.get("target", "coreml")
    return found


@pytest.fixture(scope="module")
def of_mesp() -> Recorded:
    """Graphs of MeSP's plan for one tiny model, and of answers."""
    return recorded(["mesp"], CASES[:1])


def test_the_target_keeps_its_contract_on_a_method() -> None:
    report = check_target(target(), optimizers=["mezo"], tolerance=1e-5)
    assert report.opened == report.lowered > 30


@pytest.mark.slow
@pytest.mark.parametrize("weights", FORMS)
def test_the_target_keeps_its_contract_on_every_method(weights: str) -> None:
    report = check_target(target(), target().Options(weights=weights), tolerance=1e-5)
    assert report.opened == report.lowered > 150


# ---- what stands in a file -------------------------------------------------------------------------------------------------------


def lowered(cases: Recorded, folder: Path, **options: Any) -> Iterator[tuple[Graph, Path, tuple[torch.Tensor, ...]]]:
    for graph, operands in cases.values():
        yield graph, target().lower(graph, folder, target().Options(**options)).path, operands


def constants(program: Any) -> Iterator[np.ndarray]:
    for function in program.functions.values():
        for operation in function.operations:
            if operation.op_type == "const" and isinstance(operation.val.val, np.ndarray | np.generic):
                yield np.asarray(operation.val.val)


@pytest.mark.parametrize("weights", FORMS)
def test_coremltools_reads_every_spec_and_nothing_is_folded_into_it(
    weights: str, of_mesp: Recorded, tmp_path: Path
) -> None:
    from coremltools.converters.mil.frontend.milproto.load import load
    from coremltools.models.utils import load_spec

    for graph, path, _ in lowered(of_mesp, tmp_path, weights=weights):
        model = load_spec(str(path))
        assert model.specificationVersion == (9 if weights == "int32" else 10)
        assert b"weight.bin" not in path.read_bytes()
        program = load(model, model.specificationVersion, "")
        for constant in constants(program):
            assert constant.nbytes <= LARGEST_CONSTANT, graph.name
            assert constant.dtype.kind != "f" or np.isfinite(constant).all(), graph.name
        names = [feature.name for feature in model.description.input]
        assert names == [f"x{number}" for number in range(len(graph.inputs))]
        assert [feature.name for feature in model.description.output] == [
            f"y{number}" for number in range(len(graph.outputs))
        ]
    assert {path.suffix for path in tmp_path.iterdir()} == {".mlmodel"}


def test_a_feature_says_which_tensor_it_is(of_mesp: Recorded, tmp_path: Path) -> None:
    from bespoke_plugins.targets.coreml.features import Feature

    for graph, path, _ in lowered(of_mesp, tmp_path):
        spec = read_spec(path)
        for side, features in ((graph.inputs, spec.inputs), (graph.outputs, spec.outputs)):
            read = [Feature.described(one.name, one.type.shape, one.type.dtype, one.description) for one in features]
            assert [feature.tensor for feature in read] == list(side)
            assert all(
                math.prod(f.shape) * (4 if f.tensor.dtype == "uint8" else 1) == math.prod(f.tensor.shape) for f in read
            )


# ---- integers that do not fit ----------------------------------------------------------------------------------------------------


def test_an_unlimited_window_is_clamped_and_a_token_beyond_int32_is_refused() -> None:
    from bespoke_plugins.targets.coreml.features import LARGEST, features_of, to_feature

    window, tokens = features_of([TensorSpec("window", (), "int64"), TensorSpec("tokens", (2,), "int64")], "x", "int32")
    assert to_feature(window, torch.tensor(2**40)).tolist() == [LARGEST]
    assert to_feature(tokens, torch.tensor([5, -LARGEST])).dtype == np.int32
    with pytest.raises(DataError, match=r"operand 'tokens': got the integer 1099511627776"):
        to_feature(tokens, torch.tensor([5, 2**40]))


def graph_of(function: Callable[..., Any], *operands: TensorSpec) -> Graph:
    leaves, form = flatten(operands)
    return Tracer().trace(function, leaves, form, {})[0]


X = TensorSpec("x", (3, 4), "float32")


@pytest.mark.parametrize(
    ("function", "operand", "says"),
    [
        (
            lambda x: (torch.ops.aten.special_bessel_j0.default(x),),
            X,
            "special_bessel_j0.default: got an operator without",
        ),
        (
            lambda x: (x + 2**40,),
            TensorSpec("x", (3,), "int64"),
            "add.Tensor: got ValueError: the integer 1099511627776",
        ),
        (lambda x: (x & 3,), TensorSpec("x", (3,), "int64"), "bitwise_and"),
        (lambda x: (x.cumsum(0),), X, "cumsum"),
    ],
)
def test_what_cannot_be_lowered_is_named(
    function: Callable[..., Any], operand: TensorSpec, says: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported) as refused:
        target().lower(graph_of(function, operand), tmp_path, target().Options())
    assert says in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("version", "says"), [("8.3", "got coremltools 8.3"), (None, "got no package 'coremltools'")])
def test_another_coremltools_is_refused(
    version: str | None, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from importlib.metadata import PackageNotFoundError

    from bespoke_plugins.targets.coreml import vendor

    def found(name: str) -> str:
        if version is None:
            raise PackageNotFoundError(name)
        return version

    monkeypatch.setattr(vendor, "version", found)
    vendor.load_coremltools.cache_clear()
    try:
        with pytest.raises(MissingDependency, match=says) as refused:
            target().lower(graph_of(lambda x: (x + 1,), X), tmp_path, target().Options())
        assert "pip install" in str(refused.value)
    finally:
        vendor.load_coremltools.cache_clear()


# ---- precision -------------------------------------------------------------------------------------------------------------------


def test_fp16_is_refused_for_a_method_that_goes_back(of_mesp: Recorded, tmp_path: Path) -> None:
    """By the graphs that send a gradient back through frozen weights: every such method has one."""
    back = {HEAD_CHUNK_GRADIENT_INT4, LINEAR_TRANSPOSED_INT4}
    refusals = 0
    for graph, _ in of_mesp.values():
        if back & {str(node.target) for node in graph.module.graph.nodes}:
            with pytest.raises(Unsupported, match=f"Graph '{graph.name}', operator ") as refused:
                target().lower(graph, tmp_path, target().Options(precision="fp16"))
            assert "zeroth-order" in refused.value.next_step
            refusals += 1
    assert refusals >= 3


def test_forward_graphs_in_fp16_have_no_infinity_and_norms_in_fp32(tmp_path: Path) -> None:
    """The figure is a first-order bound of a block's depth in roundings of 2^-11."""
    halves = 0
    for graph, path, operands in lowered(recorded(["mezo"], (Case.of("normed", 9, 2),)), tmp_path, precision="fp16"):
        run = target().open(path, target().Options())
        assert run is not None
        results = run(*operands)
        assert all(torch.isfinite(result).all() for result in results if result.is_floating_point())
        assert distance(results, graph.module(*operands)) <= 2e-2
        spec = read_spec(path)
        types = {name: type_.dtype for operation in spec.operations for name, type_ in operation.outputs}
        halves += "fp16" in types.values()
        for operation in spec.operations:
            if operation.kind in ("rsqrt", "reduce_mean"):
                assert types[operation.outputs[0][0]] == "fp32"
    assert halves >= 5


def held_at_once(spec: Spec) -> int:
    """Bytes: the most that a call's values take, each from where it is made to its last use."""
    steps = [operation for operation in spec.operations if operation.kind != "const"]
    needed = {
        value.name: number
        for number, step in enumerate(steps)
        for given in step.inputs.values()
        for value in given
        if isinstance(value, Reference)
    }
    needed |= dict.fromkeys((feature.name for feature in spec.outputs), len(steps))
    made = [
        (number, needed.get(name, number), np.dtype(NUMPY[kind.dtype]).itemsize * math.prod(kind.shape))
        for number, step in enumerate(steps)
        for name, kind in step.outputs
    ]
    return max(sum(size for first, last, size in made if first <= now <= last) for now in range(len(steps)))


def test_the_workspace_is_what_the_values_of_a_call_take_and_weights_are_dense_in_it(
    of_mesp: Recorded, tmp_path: Path
) -> None:
    dense = 0
    for graph, operands in of_mesp.values():
        artifact = target().lower(graph, tmp_path, target().Options())
        assert artifact.workspace_bytes == held_at_once(read_spec(artifact.path)), graph.name
        if graph.name == "head_chunk":
            (codes,) = (operand for operand in operands if operand.dtype == torch.uint8)
            assert artifact.workspace_bytes > 2 * codes.numel() * 4
            dense += 1
    assert dense


# ---- wrong attributes ------------------------------------------------------------------------------------------------------------

Change = Callable[[list[int]], list[int]]
_FLIP: Change = lambda bits: [not bits[0], *bits[1:]]  # noqa: E731
_NEXT: Change = lambda numbers: [number - 1 if number > 0 else number + 1 for number in numbers]  # noqa: E731
_TURN: Change = lambda numbers: [*numbers[1:], numbers[0]]  # noqa: E731
_SET: Change = lambda bits: [True] * len(bits)  # noqa: E731
_FIRST: Change = lambda numbers: [numbers[0] + 1, *numbers[1:]]  # noqa: E731

Kind = Literal["ints", "bools", "floats"]
PLANTS: list[tuple[str, str, Kind, Change]] = [
    ("matmul", "transpose_x", "bools", _FLIP),
    ("matmul", "transpose_y", "bools", _FLIP),
    ("transpose", "perm", "ints", _TURN),
    ("reduce_sum", "axes", "ints", _NEXT),
    ("reduce_sum", "keep_dims", "bools", _FLIP),
    ("reduce_mean", "axes", "ints", _NEXT),
    ("reduce_mean", "keep_dims", "bools", _FLIP),
    ("reduce_max", "axes", "ints", _NEXT),
    ("reduce_argmax", "axis", "ints", _NEXT),
    ("softmax", "axis", "ints", lambda axis: [1]),
    ("concat", "interleave", "bools", _FLIP),
    ("concat", "axis", "ints", _NEXT),
    ("stack", "axis", "ints", _NEXT),
    ("split", "split_sizes", "ints", _FIRST),
    ("split", "axis", "ints", _NEXT),
    ("slice_by_index", "begin", "ints", _FIRST),
    ("slice_by_index", "stride", "ints", _FIRST),
    ("slice_by_index", "end_mask", "bools", _SET),
    ("slice_by_index", "squeeze_mask", "bools", _FLIP),
    ("tile", "reps", "ints", _FIRST),
    ("gather", "axis", "ints", _NEXT),
    ("gather_along_axis", "axis", "ints", _NEXT),
    ("expand_dims", "axes", "ints", _NEXT),
    ("reshape", "shape", "ints", _TURN),
    ("fill", "shape", "ints", _FIRST),
    ("range_1d", "start", "ints", _FIRST),
    ("rsqrt", "epsilon", "floats", lambda values: [0.5]),
]


def planted(data: bytes, kind: str, parameter: str, field: Kind, change: Change) -> Iterator[bytes]:
    """The spec with the attribute changed in one operation of the kind, in turn, where that says something else."""
    from coremltools import proto

    for number, operation in enumerate(_block(proto.Model_pb2.Model.FromString(data)).operations):
        if operation.type == kind:
            model = proto.Model_pb2.Model.FromString(data)
            block = _block(model)
            if parameter.endswith("_mask") and parameter not in operation.inputs:
                _add_mask(block, number, parameter)
            changed = next(one for one in block.operations if one.outputs[0].name == operation.outputs[0].name)
            values = getattr(_value(block, changed, parameter), field).values
            found = change(list(values))
            if found != list(values) and _says_something_else(block, changed, parameter):
                values[:] = found
                yield model.SerializeToString()


def _block(model: Any) -> Any:
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    return block


def _value(block: Any, operation: Any, parameter: str) -> Any:
    """The tensor of a constant parameter."""
    (binding,) = operation.inputs[parameter].arguments
    return (
        next(one for one in block.operations if one.outputs[0].name == binding.name)
        .attributes["val"]
        .immediateValue.tensor
    )


def _add_mask(block: Any, number: int, parameter: str) -> None:
    """What the target leaves out, as it is by default: false in every dimension."""
    rank = len(_value(block, block.operations[number], "begin").ints.values)
    mask = block.operations[number].__class__()
    mask.CopyFrom(next(one for one in block.operations if one.type == "const"))
    mask.outputs[0].name = mask.attributes["name"].immediateValue.tensor.strings.values[0] = "planted"
    value = mask.attributes["val"]
    value.immediateValue.Clear()
    value.immediateValue.tensor.bools.values.extend([False] * rank)
    for kind in (value.type.tensorType, mask.outputs[0].type.tensorType):
        kind.Clear()
        kind.dataType, kind.rank = 1, 1
        kind.dimensions.add().constant.size = rank
    block.operations[number].inputs[parameter].arguments.add().name = "planted"
    block.operations.insert(0, mask)


def _says_something_else(block: Any, operation: Any, parameter: str) -> bool:
    """One element of each value is interleaved as it is; a mask may give the end that was asked for."""
    if parameter == "interleave":
        return len(operation.outputs[0].type.tensorType.dimensions) > 1
    if parameter == "end_mask":
        ends = list(_value(block, operation, "end").ints.values)
        name = operation.inputs["x"].arguments[0].name
        made = [one.outputs[0].type for one in block.operations if one.outputs[0].name == name]
        return any([size.constant.size for size in one.tensorType.dimensions] != ends for one in made)
    return True


@pytest.fixture(scope="module")
def specs(
    of_mesp: Recorded, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Graph, bytes, tuple[torch.Tensor, ...]]]:
    folder = tmp_path_factory.mktemp("specs")
    return [(graph, path.read_bytes(), operands) for graph, path, operands in lowered(of_mesp, folder)]


@pytest.mark.parametrize(
    ("kind", "parameter", "field", "change"), PLANTS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_wrong_attribute_shows(
    kind: str, parameter: str, field: Kind, change: Change, specs: list[Any], tmp_path: Path
) -> None:
    """In the first operation that it changes, of three graphs: the interpreter refuses the file, or its results are other ones."""
    assert field in get_args(Kind)
    tried, path = 0, tmp_path / "planted"
    for graph, whole, operands in specs:
        for data in planted(whole, kind, parameter, field, change):
            tried += 1
            path.write_bytes(data)
            try:
                run = target().open(path, target().Options())
                assert run is not None
                caught = not distance(run(*operands), graph.module(*operands)) <= 1e-3
            except (BespokeError, RuntimeError):
                caught = True
            assert caught, f"{graph.name}: {kind}.{parameter}"
            break
        if tried == 3:
            break
    assert tried


def test_golden_vectors_hold_in_the_interpreter(of_mesp: Recorded, tmp_path: Path) -> None:
    """What the script for a Mac reads: files of the features' sizes, of which the specs make the results that are written."""
    written = dict(list(of_mesp.items())[:6])
    assert write_vectors(tmp_path, written) == 6
    kinds = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32}

    def read(tensor: dict[str, Any]) -> np.ndarray:
        return np.fromfile(tmp_path / tensor["file"], kinds[tensor["dtype"]]).reshape(tensor["shape"])

    for vector in json.loads((tmp_path / "index.json").read_text()):
        made = Interpreter(read_spec(tmp_path / vector["spec"])).run(
            {one["name"]: read(one) for one in vector["inputs"]}
        )
        for one in vector["outputs"]:
            expected = read(one)
            assert np.abs(made[one["name"]] - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())
