# SPDX-License-Identifier: Apache-2.0
"""A doctored exported program runs nothing: no pickle is opened, no text evaluated, no operator outside the rules called.

Each attack would leave a file, the canary, if it ran. A control shows that torch's own loader does run one of them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.errors import BundleError
from bespoke.ops.load_program import load_program


class Runs:
    """A pickle that runs a command when it is opened."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def refused(data: bytes, canary: Path) -> BundleError:
    with pytest.raises(BundleError) as caught:
        load_program(data, "graphs/scale.json")(torch.ones(4, 8), torch.ones(8))
    assert not canary.exists()
    assert "graphs/scale.json" in caught.value.subject
    return caught.value


class Sample(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def doctored_pt2(folder: Path, canary: Path) -> Path:
    """A .pt2 whose sample inputs are a pickle that runs a command."""
    torch.export.save(torch.export.export(Sample(), (torch.ones(2),)), folder / "sound.pt2")
    with (
        zipfile.ZipFile(folder / "sound.pt2") as sound,
        zipfile.ZipFile(folder / "doctored.pt2", "w") as doctored,
    ):
        for info in sound.infolist():
            data = sound.read(info)
            if "sample_inputs" in info.filename and not info.filename.endswith(".json"):
                data = pickle.dumps(Runs(f"touch {canary}"))
            doctored.writestr(info.filename, data)
    return folder / "doctored.pt2"


def test_a_pickle_in_the_sample_inputs_is_never_opened(tmp_path: Path, canary: Path) -> None:
    path = doctored_pt2(tmp_path, canary)
    refused(path.read_bytes(), canary)
    refused(pickle.dumps(Runs(f"touch {canary}")), canary)
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            refused(archive.read(name), canary)


def test_control_torchs_own_loader_opens_it(tmp_path: Path, canary: Path) -> None:
    path = doctored_pt2(tmp_path, canary)
    with contextlib.suppress(Exception):
        torch.export.load(path)
    if not canary.exists():
        pytest.skip("this torch does not open the pickle; the trap is gone")


# ---- targets ---------------------------------------------------------------------------------------------------------

TARGETS = [
    "os.system",
    "builtins.eval",
    "builtins.exec",
    "posix.system",
    "subprocess.run",
    "torch.load",
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.os.system",
    "torch.ops.other.x.default",
    "torch.ops.prim.device.default",
    "torch.ops.quantized.add.default",
    "torch.ops.higher_order.cond",
    "torch.ops.higher_order.triton_kernel_wrapper_functional",
    "torch.ops.aten",
    "torch.ops.aten.mul",
    "torch.ops.aten.mul.Tensor.__class__",
    "torch.ops.aten.__class__.default",
    "torch.ops.aten.mul.__init__",
    "torch.ops.aten._dir.default",
    "torch.ops.aten.no_such_operator.default",
    "torch.ops.aten.mul.no_such_overload",
    "torch.ops.bespoke.no_such_operator.default",
    "torch.ops.bespoke.__module__.default",
    "torch.ops.aten.mul.Tensor\n",
    "torch.ops.aten.mul.Tensor ",
    " torch.ops.aten.mul.Tensor",
    "_operator.attrgetter",
    "_operator.getitem",
    "math.sqrt",
    "#extension:run",
    "getattr",
    "",
    None,
    1,
    ["torch.ops.aten.mul.Tensor"],
    {"torch": 1},
]

# Operators of aten that are none of a graph's business: files, other storages, in place, random, private.
ATEN = [
    ("save.default", {"item": {"as_tensor": {"name": "v0"}}, "filename": {"as_string": "CANARY"}}),
    ("from_file.default", {"filename": {"as_string": "CANARY"}, "shared": {"as_bool": True}, "size": {"as_int": 4}}),
    ("mul_.Tensor", {"self": {"as_tensor": {"name": "v0"}}, "other": {"as_float": 2.0}}),
    ("add.out", {"self": {"as_tensor": {"name": "v0"}}, "other": {"as_tensor": {"name": "v0"}}}),
    ("set_.source_Tensor", {"self": {"as_tensor": {"name": "v0"}}, "source": {"as_tensor": {"name": "v0"}}}),
    ("resize_.default", {"self": {"as_tensor": {"name": "v0"}}, "size": {"as_ints": [1]}}),
    ("rand.default", {"size": {"as_ints": [4, 8]}}),
    ("bernoulli.default", {"self": {"as_tensor": {"name": "v0"}}}),
    (
        "native_dropout.default",
        {"input": {"as_tensor": {"name": "v0"}}, "p": {"as_float": 0.5}, "train": {"as_bool": True}},
    ),
    ("_local_scalar_dense.default", {"self": {"as_tensor": {"name": "v0"}}}),
    ("item.default", {"self": {"as_tensor": {"name": "v0"}}}),
    ("warn.default", {"message": {"as_string": "hello"}}),
    ("_print.default", {"s": {"as_string": "hello"}}),
    ("_linalg_check_errors.default", {"info": {"as_tensor": {"name": "v0"}}, "api_name": {"as_string": "x"}}),
]


def document_of(graph: bytes) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(graph)
    return loaded


def first_node(document: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = document["graph_module"]["graph"]["nodes"][0]
    return node


@pytest.mark.parametrize("target", TARGETS)
def test_foreign_operators_are_refused(graph: bytes, canary: Path, target: Any) -> None:
    document = document_of(graph)
    node = first_node(document)
    node["target"] = target
    command = {"name": "command", "arg": {"as_string": f"touch {canary}"[:64]}, "kind": 1}
    for operands in (node["inputs"], [command], []):
        node["inputs"] = operands
        refused(json.dumps(document).encode(), canary)


@pytest.mark.parametrize(("operator", "operands"), ATEN)
def test_operators_of_aten_that_touch_files_or_operands_are_refused(
    graph: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, operands: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)  # so that the canary's name is short
    (tmp_path / "here").mkdir()
    document = document_of(graph)
    node = first_node(document)
    node["target"] = f"torch.ops.aten.{operator}"
    text = json.dumps(operands).replace("CANARY", "here/canary")
    for kind in (1, 2):
        node["inputs"] = [{"name": name, "arg": arg, "kind": kind} for name, arg in json.loads(text).items()]
        refused(json.dumps(document).encode(), tmp_path / "here" / "canary")


# ---- everything else in the document ------------------------------------------------------------------------------------


def set_at(*path: Any, value: Any) -> Callable[[dict[str, Any], str], None]:
    def change(document: dict[str, Any], code: str) -> None:
        holder: Any = document
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = json.loads(json.dumps(value).replace("CODE", code))

    return change


def argument(value: Any) -> Callable[[dict[str, Any], str], None]:
    return set_at("graph_module", "graph", "nodes", 0, "inputs", 0, "arg", value=value)


GRAPH = ("graph_module", "graph")
SIGNATURE = ("graph_module", "signature")
EXPRESSION = {"expr_str": "CODE", "hint": {"as_int": 4}}
CHANGES: dict[str, Callable[[dict[str, Any], str], None]] = {
    "guards": set_at("guards_code", value=["CODE"]),
    "sample inputs": set_at("example_inputs", value="gASVCODE"),
    "state": set_at("state_dict", value={"a": 1}),
    "constants": set_at("constants", value={"a": 1}),
    "range constraints": set_at("range_constraints", value={"s0": {"min_val": 0, "max_val": 4}}),
    "verifiers": set_at("verifiers", value=["CODE"]),
    "opset": set_at("opset_version", value={"aten": 11}),
    "schema": set_at("schema_version", "major", value=9),
    "version text": set_at("torch_version", value="CODE"),
    "metadata of the module": set_at("graph_module", "metadata", value={"a": "CODE"}),
    "named tuples": set_at("graph_module", "treespec_namedtuple_fields", value={"os.system": {"field_names": []}}),
    "stack": set_at(*GRAPH, "nodes", 0, "metadata", value={"nn_module_stack": "CODE,os,os.system"}),
    "node name": set_at(*GRAPH, "nodes", 0, "name", value="CODE"),
    "higher order": set_at(*GRAPH, "nodes", 0, "is_hop_single_tensor_return", value=True),
    "input tree": set_at("graph_module", "module_call_graph", 0, "signature", "in_spec", value="CODE"),
    "output tree": set_at(
        "graph_module", "module_call_graph", 0, "signature", "out_spec", value='[1, {"type": "os.system"}]'
    ),
    "argument names": set_at(
        "graph_module", "module_call_graph", 0, "signature", "forward_arg_names", value=["CODE", "x=CODE"]
    ),
    "submodule": set_at("graph_module", "module_call_graph", 0, "fqn", value="CODE"),
    "symbolic size": set_at(*GRAPH, "tensor_values", "v0", "sizes", 0, value={"as_expr": EXPRESSION}),
    "symbolic values": set_at(*GRAPH, "sym_int_values", value={"s0": {"as_expr": EXPRESSION}}),
    "custom objects": set_at(*GRAPH, "custom_obj_values", value={"o": {"name": "o", "class_fqn": "os.system"}}),
    "input name": set_at(*GRAPH, "inputs", 0, "as_tensor", "name", value="v0=CODE"),
    "constant input": set_at(
        *SIGNATURE, "input_specs", 0, value={"constant_input": {"name": "v0", "value": {"as_int": 1}}}
    ),
    "buffer": set_at(*SIGNATURE, "input_specs", 0, value={"buffer": {"arg": {"name": "v0"}, "buffer_name": "b"}}),
    "object input": set_at(*SIGNATURE, "input_specs", 0, value={"custom_obj": {"custom_obj_name": "CODE"}}),
    "mutation": set_at(*SIGNATURE, "output_specs", 0, value={"user_input_mutation": {"user_input_name": "v0"}}),
    "output of code": set_at(*GRAPH, "outputs", 0, value={"as_string": "CODE"}),
    "device": set_at(*GRAPH, "tensor_values", "v0", "device", value={"type": "CODE", "index": None}),
    "symbolic argument": argument({"as_sym_int": {"as_expr": EXPRESSION}}),
    "graph argument": argument({"as_graph": {"name": "g", "graph": {}}}),
    "object argument": argument({"as_custom_obj": {"name": "o", "class_fqn": "os.system"}}),
    "operator argument": argument({"as_operator": "os.system"}),
    "text argument": argument({"as_string": "CODE"}),
    "complex argument": argument({"as_complex": {"real": 1.0, "imag": 0.0}}),
    "dictionary argument": argument({"as_string_to_argument": {"a": {"as_string": "CODE"}}}),
    "two arguments": argument({"as_int": 1, "as_string": "CODE"}),
    "view of a number": lambda document, code: first_node(document).update(
        target="torch.ops.aten.view.default",
        inputs=[
            {"name": "self", "arg": {"as_int": 1}, "kind": 1},
            {"name": "size", "arg": {"as_ints": [4, 8]}, "kind": 1},
        ],
    ),
    "unknown value": argument({"as_tensor": {"name": "v9"}}),
    "later value": argument({"as_tensor": {"name": "v3"}}),
    "itself": argument({"as_tensor": {"name": "v2"}}),
    "name of code": argument({"as_tensor": {"name": "CODE"}}),
    "device argument": argument({"as_device": {"type": "cuda", "index": 0}}),
    "list of code": argument({"as_tensors": ["CODE"]}),
    "no argument": set_at(*GRAPH, "nodes", 0, "inputs", value=[]),
    "unknown argument": set_at(*GRAPH, "nodes", 0, "inputs", 0, "name", value="CODE"),
    "kind": set_at(*GRAPH, "nodes", 0, "inputs", 0, "kind", value=0),
    "no results": set_at(*GRAPH, "nodes", 0, "outputs", value=[]),
    "results of another name": set_at(*GRAPH, "nodes", 0, "outputs", 0, "as_tensor", "name", value="v0"),
    "nodes": set_at(*GRAPH, "nodes", value="CODE"),
    "graph": set_at("graph_module", "graph", value=[]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_doctored_document_is_refused(graph: bytes, canary: Path, name: str) -> None:
    document = copy.deepcopy(document_of(graph))
    CHANGES[name](document, f"__import__('os').system('touch {canary}')")
    assert json.dumps(document) != json.dumps(document_of(graph))
    refused(json.dumps(document).encode(), canary)


def test_the_document_as_it_was_is_read(graph: bytes) -> None:
    module = load_program(json.dumps(document_of(graph)).encode(), "graph")
    x = torch.linspace(-2, 2, 32).view(4, 8)
    torch.testing.assert_close(module(x, torch.full((8,), 2.0))[0], 2 * x * torch.sigmoid(x))


def test_each_field_removed_is_refused(graph: bytes, canary: Path) -> None:
    """Nothing is optional: a reader that filled it in would decide what was not said. (A list may well be shorter.)"""

    def places(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        inner = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
        found = [(*path, key) for key, _ in inner if isinstance(value, dict)]
        return found + [place for key, item in inner for place in places(item, (*path, key))]

    for path in places(document_of(graph), ()):
        document = document_of(graph)
        holder: Any = document
        for part in path[:-1]:
            holder = holder[part]
        del holder[path[-1]]
        refused(json.dumps(document).encode(), canary)


def test_huge_and_deep_documents_are_refused(graph: bytes, canary: Path) -> None:
    document = document_of(graph)
    for data in (
        b"[" * 1_000_000,
        b'{"graph_module": ' * 100 + b"1" + b"}" * 100,
        b" " * (33 * 2**20),
        graph.replace(b'"guards_code":[]', b'"guards_code":[],"guards_code":[]'),
        graph.replace(b'"guards_code":[]', b'"guards_code":[NaN]'),
    ):
        refused(data, canary)
    document["graph_module"]["graph"]["inputs"] *= 10_000
    refused(json.dumps(document).encode(), canary)


def load_every_flip(graph: bytes, canary: Path, step: int) -> tuple[int, int]:
    """(tried, refused): what is not refused is a graph of other numbers."""
    tried = count = 0
    for position in range(0, len(graph), step):
        doctored = bytearray(graph)
        doctored[position] ^= 1 << position % 8
        tried += 1
        try:
            load_program(bytes(doctored), "graph")
        except BundleError:
            count += 1
    assert not canary.exists()
    return tried, count


def test_flipped_bytes_are_refused_or_mean_another_graph(graph: bytes, canary: Path) -> None:
    load_every_flip(graph, canary, 41)


@pytest.mark.slow
def test_every_flipped_byte_is_refused_or_means_another_graph(
    graph: bytes, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried, count = load_every_flip(graph, canary, 1)
    with capsys.disabled():
        print(
            f"\n| programs with a flipped byte, without their hash: {tried} tried | {count} refused, 0 failed otherwise |"
        )
