# SPDX-License-Identifier: Apache-2.0
"""An exported program that takes or gives other tensors than the manifest says is refused, and so is one that lies about itself."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.target_records import GraphRecord, TensorRecord
from bespoke.errors import BudgetExceeded, BundleError
from bespoke.reference.graph_function import GraphFunction
from bespoke.reference.train import train
from tests.malformed_bundles.graph_record import RECORD
from tests.malformed_bundles.hostile import edit
from tests.support.checks import count, new_seed, record_check
from tests.support.foreign import Signature, Tensors, foreign
from tests.unit.personal_model.tiny import number_rows, tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]


def signature(record: GraphRecord) -> Signature:
    def tensors(specs: Sequence[TensorRecord]) -> Tensors:
        return tuple((tuple(spec.shape), spec.dtype) for spec in specs)

    return Signature(tensors(record.inputs), tensors(record.outputs))


def with_signature(record: GraphRecord, other: Signature) -> GraphRecord:
    def specs(tensors: Tensors, like: Sequence[TensorRecord]) -> tuple[TensorRecord, ...]:
        return tuple(
            like[0].model_copy(update={"name": f"t{number}", "shape": shape, "dtype": dtype})
            for number, (shape, dtype) in enumerate(tensors)
        )

    inputs, outputs = specs(other.operands, record.inputs), specs(other.results, record.outputs)
    return record.model_copy(update={"inputs": inputs, "outputs": outputs})


def test_a_graph_of_a_foreign_signature_is_refused(tiny_bundle: Path) -> None:
    seed = new_seed()
    numbers = random.Random(seed)
    with read_bundle(tiny_bundle) as bundle:
        graphs = [(record, bundle.read(record.file)) for record in bundle.manifest.graphs]
    for record, data in graphs:
        GraphFunction(data, record)
    all_of = [signature(record) for record, _ in graphs]
    done: Counter[str] = Counter()
    for _ in range(count(10_000)):
        record, data = numbers.choice(graphs)
        what, other = foreign(signature(record), all_of, numbers)
        with pytest.raises(BundleError) as refused:
            GraphFunction(data, with_signature(record, other))
        assert refused.value.subject == record.file
        assert refused.value.got.startswith("a program with ")
        done[what] += 1
    record_check(
        "exported programs of a foreign signature, on torch",
        {"refused": done.total(), "ways of being foreign": len(done)},
        seed,
    )


def test_a_bundle_whose_graphs_were_exchanged_does_not_train(tiny_bundle: Path, tmp_path: Path) -> None:
    """Every hash is right: the author of the manifest exchanged two files."""
    seed = new_seed()
    numbers = random.Random(seed)
    bundle = shutil.copytree(tiny_bundle, tmp_path / "a.bundle")
    with read_bundle(bundle) as opened:
        method = opened.manifest.methods[0]
        plan = json.loads(opened.read(method.plans[0].file))
        called = {graph["key"] for graph in plan["graphs"]}
        owns = {record.file: signature(record) for record in opened.manifest.graphs}
        files = [record.file for record in opened.manifest.graphs if record.key in called]
    bundles = count(200)
    for _ in range(bundles):
        while True:
            one, two = numbers.choice(files), numbers.choice(list(owns))
            if owns[one] != owns[two]:
                break

        def exchange(document: dict[str, Any], one: str = one, two: str = two) -> None:
            for graph in document["graphs"]:
                graph["file"] = {one: two, two: one}.get(graph["file"], graph["file"])

        edit(bundle, exchange)
        with read_bundle(bundle) as opened, pytest.raises(BundleError) as refused:
            train(opened, user_rows=number_rows(), seed=1, steps=1)
        assert refused.value.subject in (one, two)
        edit(bundle, exchange)
    record_check("bundles whose exported programs were exchanged, on torch", {"refused": bundles}, seed)


# ---- programs that lie ---------------------------------------------------------------------------------------------------------

OPERANDS = torch.ones(4, 8), torch.ones(8)


def doctored(graph: bytes, **of_the_last: Any) -> bytes:
    """The program with other words about its result."""
    document = json.loads(graph)
    inner = document["graph_module"]["graph"]
    inner["tensor_values"][inner["outputs"][0]["as_tensor"]["name"]].update(of_the_last)
    return json.dumps(document).encode()


def test_a_program_that_gives_other_than_it_says_is_refused_when_it_is_called(graph: bytes) -> None:
    GraphFunction(graph, RECORD)(*OPERANDS)
    others = ((8, 4), "float32"), ((32,), "float32"), ((1, 4, 8), "float32"), ((4, 8), "float16")
    for shape, dtype in others:
        sizes = [{"as_int": size} for size in shape]
        said = doctored(graph, sizes=sizes, strides=[{"as_int": 1}] * len(shape), dtype=6 if dtype == "float16" else 7)
        function = GraphFunction(said, with_signature(RECORD, Signature(signature(RECORD).operands, ((shape, dtype),))))
        with pytest.raises(BundleError, match=r"result 0 of float32 \(4, 8\)"):
            function(*OPERANDS)


def test_a_program_whose_operators_do_not_fit_its_operands_is_a_bundle_error(graph: bytes) -> None:
    document = json.loads(graph)
    document["graph_module"]["graph"]["tensor_values"]["v1"].update(sizes=[{"as_int": 7}])
    narrow = with_signature(RECORD, Signature((((4, 8), "float32"), ((7,), "float32")), signature(RECORD).results))
    with pytest.raises(BundleError, match="a call that fails: The size of tensor") as raised:
        GraphFunction(json.dumps(document).encode(), narrow)(torch.ones(4, 8), torch.ones(7))
    assert raised.value.subject == "graphs/scale.json: graph 'scale'"


@pytest.mark.slow
def test_a_program_that_gives_our_operators_impossible_numbers_is_refused_where_they_matter(tiny_bundle: Path) -> None:
    """A static number of columns is in the program, where no signature holds it. More than there are means all of them."""
    refused, tried = 0, 0
    with read_bundle(tiny_bundle) as bundle:
        for record in bundle.manifest.graphs:
            document = json.loads(bundle.read(record.file))
            operands = [torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in record.inputs]
            for node in document["graph_module"]["graph"]["nodes"]:
                columns = [given["arg"] for given in node["inputs"] if given["name"] == "columns"]
                for number in (-(2**63), -32, 0, 2**62) if columns else ():
                    before = dict(columns[0])
                    columns[0].clear()
                    columns[0]["as_int"] = number
                    try:
                        GraphFunction(json.dumps(document).encode(), record)(*operands)
                    except (BundleError, BudgetExceeded):
                        refused += 1
                    columns[0].clear()
                    columns[0].update(before)
                    tried += 1
    assert refused > tried // 2 > 4


def test_a_program_that_asks_for_more_memory_than_there_is_exceeds_the_budget(graph: bytes) -> None:
    huge = torch.ones(1, 1).expand(2**30, 2**30)  # one number in memory, an exabyte of results
    with pytest.raises(BudgetExceeded):
        GraphFunction(graph, RECORD)(huge, torch.ones(1))
