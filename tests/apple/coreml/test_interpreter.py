# SPDX-License-Identifier: Apache-2.0
"""Each operator of the MIL interpreter against coremltools' own value inference, or torch; files that say what they should not."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from bespoke.errors import DataError
from bespoke_plugins.targets.coreml.mil import Interpreter, Spec, read_spec
from bespoke_plugins.targets.coreml.mil.operators import OPERATORS
from tests.apple.coreml.mil_examples import EXAMPLES, TORCH, Arguments, tolerance

pytestmark = pytest.mark.apple
COUNT = 200 if os.environ.get("BESPOKE_FULL") else 8


def one_operator(kind: str, given: Arguments) -> tuple[bytes, list[np.ndarray]]:
    """A spec of constants and this operator, and what comes out of it."""
    from bespoke_plugins.targets.coreml.vendor import load_coremltools

    load_coremltools()
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Function, Program, types

    from bespoke.graph import TensorSpec
    from bespoke_plugins.targets.coreml.features import Feature
    from bespoke_plugins.targets.coreml.spec import compiled

    with Function({}, opset_version=ct.target.iOS18) as function:
        made = getattr(mb, kind)(**given)
        made = list(made) if isinstance(made, list | tuple) else [made]
        expected = [None if kind in TORCH else value.val for value in made]
        if any(value is None for value in expected):
            found = TORCH[kind](given)
            expected = [one.numpy() for one in (found if isinstance(found, list | tuple) else [found])]
        features, results = [], []
        for number, value in enumerate(made):
            dtype = types.builtin_to_string(value.dtype)
            if dtype not in ("fp32", "fp16", "int32"):
                value, dtype = mb.cast(x=value, dtype="int32"), "int32"
            name = f"y{number}"
            value = mb.identity(x=value, name=name) if value.shape else mb.expand_dims(x=value, axes=[0], name=name)
            results.append(value)
            features.append(
                Feature(name, TensorSpec(name, tuple(value.shape), "float32"), tuple(value.shape), dtype, "same")
            )
        function.set_outputs(results)
    program = Program()
    program.add_function("main", function)
    return compiled(program, ct.target.iOS18, [], features).data, [np.asarray(value) for value in expected]


@pytest.mark.parametrize("kind", sorted(EXAMPLES))
def test_an_operator_gives_what_coremltools_infers(kind: str) -> None:
    rng = np.random.default_rng([7, *kind.encode()])
    for _ in range(COUNT):
        given = EXAMPLES[kind](rng)
        data, expected = one_operator(kind, given)
        interpreter = Interpreter(read_spec(data))
        got = list(interpreter.run({}).values())
        assert interpreter.ran[kind] >= 1
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert one.shape == (other.shape or (1,))
            a, b = one.astype(np.float64), other.astype(np.float64).reshape(one.shape)
            assert np.abs(a - b).max() <= tolerance(given) * max(1.0, np.abs(b).max()), given


def test_every_operator_of_the_interpreter_has_examples() -> None:
    assert EXAMPLES.keys() == OPERATORS.keys()


# ---- what is refused -----------------------------------------------------------------------------------------------------------


def changed(kind: str, given: Arguments, change: Any) -> bytes:
    """The spec of one operator after `change(operation, block)` of coremltools' message."""
    from coremltools import proto

    data, _ = one_operator(kind, given)
    model = proto.Model_pb2.Model.FromString(data)
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    change(next(operation for operation in block.operations if operation.type == kind), block)
    return model.SerializeToString()


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _foreign_operator(operation: Any, block: Any) -> None:
    operation.type = "cumsum"


def _foreign_parameter(operation: Any, block: Any) -> None:
    operation.inputs["exclusive"].CopyFrom(operation.inputs["axis"])


def _missing_parameter(operation: Any, block: Any) -> None:
    del operation.inputs["x"]


def _foreign_type(operation: Any, block: Any) -> None:
    for other in block.operations:
        if other.type == "const" and other.outputs[0].name == operation.inputs["x"].arguments[0].name:
            other.type = "identity"


def _attribute_of_a_type(operation: Any, block: Any) -> None:
    operation.outputs[0].type.tensorType.attributes["layout"].SetInParent()


def _other_shape(operation: Any, block: Any) -> None:
    operation.outputs[0].type.tensorType.dimensions[0].constant.size += 1


def _other_dtype(operation: Any, block: Any) -> None:
    operation.outputs[0].type.tensorType.dataType = 23


def _later_value(operation: Any, block: Any) -> None:
    operation.inputs["x"].arguments[0].name = operation.outputs[0].name


def _weight_file(operation: Any, block: Any) -> None:
    value = next(other for other in block.operations if other.type == "const").attributes["val"]
    value.blobFileValue.fileName = "@model_path/weights/weight.bin"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_foreign_operator, "cumsum"),
        (_foreign_parameter, "exclusive"),
        (_missing_parameter, "without x"),
        (_foreign_type, "identity"),
        (_attribute_of_a_type, "field 4 of a TensorType"),
        (_other_shape, "as declared"),
        (_other_dtype, "as declared"),
        (_later_value, "not there yet"),
        (_weight_file, "field 5 of a Value"),
    ],
)
def test_what_the_interpreter_does_not_know_is_refused(change: Any, says: str) -> None:
    kind, given = ("softmax", {"x": X, "axis": 1})
    with pytest.raises(DataError) as refused:
        Interpreter(read_spec(changed(kind, given, change))).run({})
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("gather", {"x": X, "indices": np.array([[0], [1]], np.int32), "axis": 1, "batch_dims": 1}, "batch_dims"),
        ("pad", {"x": X, "pad": [0, 0, 1, 1], "mode": "reflect", "constant_val": np.float32(0)}, "mode 'reflect'"),
        ("mul", {"x": np.array([2**20], np.int32), "y": np.array([2**20], np.int32)}, "int32"),
    ],
)
def test_an_attribute_that_it_is_not_written_for_is_refused(kind: str, given: Arguments, says: str) -> None:
    data, _ = one_operator(kind, given)
    with pytest.raises(DataError) as refused:
        Interpreter(read_spec(data)).run({})
    assert says in str(refused.value)


def test_bytes_that_end_early_are_refused() -> None:
    data, _ = one_operator("softmax", {"x": X, "axis": 1})
    assert isinstance(read_spec(data), Spec)
    for end in range(1, len(data), 7):
        with pytest.raises(DataError):
            read_spec(data[:end])
