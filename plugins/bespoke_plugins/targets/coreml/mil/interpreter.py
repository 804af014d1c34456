# SPDX-License-Identifier: Apache-2.0
"""Runs a spec operation by operation and gives each value the shape and element type that the file declares.

Floats are computed in fp32 and rounded to the declared type after each operation, so a program in fp16 rounds where a device may.
An integer beyond int32 is an error. So is an operator, a parameter or an element type that the table lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bespoke.errors import DataError
from bespoke_plugins.targets.coreml.mil.operators import OPERATORS, Operator
from bespoke_plugins.targets.coreml.mil.spec import NUMPY, Constant, Operation, Reference, Spec, Type
from bespoke_plugins.targets.coreml.mil.wire import refused

__all__ = ["Interpreter"]

_KINDS = {"bool": "b", "fp16": "f", "fp32": "f"}  # numpy's kind of an array; "i" for other types


class Interpreter:
    """One spec, checked before it runs. `ran`: how often each operator has run."""

    def __init__(self, spec: Spec) -> None:
        """Raises DataError for anything that the table lacks and for a value that is used before it exists."""
        self.spec = spec
        self.ran: dict[str, int] = {}
        self._constants: dict[str, Constant] = {}
        self._steps: list[tuple[Operation, Operator]] = []
        types = {feature.name: feature.type for feature in spec.inputs}
        for operation in spec.operations:
            self._add(operation, types)
            types |= dict(operation.outputs)
        for feature in spec.outputs:
            if types.get(feature.name) != feature.type:
                raise refused(f"the output '{feature.name}' as {types.get(feature.name)}", f"{feature.type}")

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by feature name, for arrays with the inputs' shapes and types."""
        values: dict[str, np.ndarray] = {}
        for feature in self.spec.inputs:
            given, wanted = inputs[feature.name], feature.type
            if (given.shape, given.dtype) != (wanted.shape, np.dtype(NUMPY[wanted.dtype])):
                raise refused(
                    f"{given.dtype} {list(given.shape)} as {feature.name}", f"{wanted.dtype} {list(wanted.shape)}"
                )
            values[feature.name] = given
        with np.errstate(over="ignore"):  # numbers beyond fp16 become infinite
            for operation, operator in self._steps:
                self._run(operation, operator, values)
        return {feature.name: values[feature.name] for feature in self.spec.outputs}

    # ---- before it runs ------------------------------------------------------------------------------------------------------

    def _add(self, operation: Operation, types: Mapping[str, Type]) -> None:
        at = f"operation '{operation.name}' ({operation.kind})"
        if operation.kind == "const":
            (value,) = operation.inputs.get("val", (None,))
            if operation.inputs.keys() != {"val"} or not isinstance(value, Constant):
                raise refused(f"{at} of {', '.join(operation.inputs)}", "one value in the file")
            ((name, declared),) = operation.outputs
            if value.type != declared:
                raise refused(f"{at} with a value of {value.type}", f"{declared}")
            self._constants[name] = value
            return
        operator = OPERATORS.get(operation.kind)
        if operator is None:
            raise refused(f"{at}, an operator without a record", f"one of {', '.join(OPERATORS)}")
        foreign = operation.inputs.keys() - operator.parameters
        lacking = operator.required - operation.inputs.keys()
        if foreign or lacking:
            raise refused(
                f"{at} with {', '.join(sorted(foreign)) or 'nothing new'}, and without {', '.join(sorted(lacking)) or 'nothing'}",
                f"{', '.join(sorted(operator.required))} and of {', '.join(sorted(operator.parameters - operator.required))}",
            )
        seen = set()
        for parameter, given in operation.inputs.items():
            for value in given:
                type_of_value = self._type(at, value, types)
                if (
                    parameter not in operator.tensors
                    and parameter not in operator.computed
                    and not self._is_constant(value)
                ):
                    raise refused(f"{at} with a computed {parameter}", "a constant")
                if parameter in operator.tensors:
                    seen.add(type_of_value.dtype)
                    if type_of_value.dtype not in operator.tensors[parameter]:
                        raise refused(
                            f"{at} with {parameter} of {type_of_value.dtype}",
                            ", ".join(sorted(operator.tensors[parameter])),
                        )
        if len(seen) > 1 and not operator.mixed:
            raise refused(f"{at} of {', '.join(sorted(seen))}", "operands of one element type")
        if operation.kind == "cast" and self._value(operation.inputs["dtype"][0], {}) != operation.outputs[0][1].dtype:
            raise refused(f"{at} to {operation.outputs[0][1].dtype}", "the type of its parameter dtype")
        self._steps.append((operation, operator))

    def _type(self, at: str, value: Reference | Constant, types: Mapping[str, Type]) -> Type:
        if isinstance(value, Constant):
            return value.type
        if value.name not in types:
            raise refused(f"{at} of '{value.name}', which is not there yet", "a value from before it")
        return types[value.name]

    def _is_constant(self, value: Reference | Constant) -> bool:
        return isinstance(value, Constant) or value.name in self._constants

    # ---- running ---------------------------------------------------------------------------------------------------------------

    def _run(self, operation: Operation, operator: Operator, values: dict[str, np.ndarray]) -> None:
        at = f"operation '{operation.name}' ({operation.kind})"
        self.ran[operation.kind] = self.ran.get(operation.kind, 0) + 1
        given: dict[str, Any] = {}
        for parameter, wanted in operation.inputs.items():
            arguments = [self._value(value, values) for value in wanted]
            given[parameter] = arguments if parameter == "values" else arguments[0]
        try:
            returned = operator.run(**given)
        except (ValueError, IndexError, TypeError) as problem:
            raise refused(f"{at}: {problem}", "operands that it is written for") from problem
        results = returned if isinstance(returned, list) else [returned]
        if len(results) != len(operation.outputs):
            raise refused(f"{len(results)} results of {at}", f"{len(operation.outputs)}")
        for result, (name, declared) in zip(results, operation.outputs, strict=True):
            values[name] = _rounded(np.asarray(result), declared, at, operation.kind)

    def _value(self, value: Reference | Constant, values: Mapping[str, np.ndarray]) -> Any:
        if isinstance(value, Reference):
            constant = self._constants.get(value.name)
            if constant is None:
                return _widened(values[value.name])
            value = constant
        return value.value if value.type.dtype == "string" else _widened(value.value)


def _widened(array: np.ndarray) -> np.ndarray:
    """Widens fp16 to fp32 and integers to int64."""
    return (
        array.astype(np.float32)
        if array.dtype == np.float16
        else array.astype(np.int64)
        if array.dtype.kind == "i"
        else array
    )


def _rounded(array: np.ndarray, declared: Type, at: str, kind: str) -> np.ndarray:
    if array.shape != declared.shape:
        raise refused(f"{list(array.shape)} of {at}", f"{list(declared.shape)}, as declared")
    if declared.dtype == "int32" and array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise DataError(
            f"MIL: {at}",
            got=f"integers from {array.min()} to {array.max()}",
            expected="integers that int32 holds",
            next_step="Clamp what is unlimited before it goes in",
        )
    if kind != "cast" and array.dtype.kind != _KINDS.get(declared.dtype, "i"):
        raise refused(f"{array.dtype} of {at}", f"{declared.dtype}, as declared")
    return array.astype(NUMPY[declared.dtype], copy=False)
