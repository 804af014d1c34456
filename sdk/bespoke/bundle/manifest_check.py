# SPDX-License-Identifier: Apache-2.0
"""Checks that the parts of a manifest agree: names are unique, references lead somewhere, budgets shrink."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from bespoke.bundle.fields import MAX_COUNT
from bespoke.bundle.file_names import MANIFEST_FILE, file_name_problem
from bespoke.bundle.manifest import ADDED, Manifest
from bespoke.bundle.target_records import ArtifactRecord, TargetRecord
from bespoke.errors import BundleError
from bespoke.plan.instructions import DTYPE_BYTES
from bespoke.plan.kinds import ADAPTER_GROUP

__all__ = ["SUBJECT", "check_manifest", "referenced_files", "refused"]

SUBJECT = MANIFEST_FILE
_BYTES = {**DTYPE_BYTES, "int32": 4, "int8": 1}  # of an element


def check_manifest(manifest: Manifest) -> None:
    """Raise BundleError if parts of a manifest contradict each other."""
    for path, names in _unique_names(manifest):
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise refused(path, f"{twice!r} twice", "each of them once")
    _check_files(manifest)
    _check_lengths(manifest)
    _check_budgets(manifest)
    _check_frozen(manifest)
    _check_federation(manifest)
    for target in manifest.targets:
        _check_artifacts(manifest, target)
        _check_features(target)


def _unique_names(manifest: Manifest) -> Iterator[tuple[str, list[Any]]]:
    """(field, names) of the lists in which no name may appear twice."""
    yield "methods", [method.name for method in manifest.methods]
    yield "targets", [target.name for target in manifest.targets]
    yield "weights", [record.group for record in manifest.weights]
    yield "graphs", [graph.key for graph in manifest.graphs]
    yield "sequence_lengths", list(manifest.sequence_lengths)
    yield "lora.linears", list(manifest.lora.linears)
    for method in manifest.methods:
        for _, variant in method.variants:
            yield f"methods.{method.name}.plans", [plan.sequence_length for plan in variant.plans]
    for target in manifest.targets:
        yield f"targets.{target.name}.artifacts", [_artifact_key(artifact) for artifact in target.artifacts]


def _artifact_key(artifact: ArtifactRecord) -> str:
    """The calls that an artifact serves, as text: those of a graph, or of a graph with these weights."""
    parts = [artifact.graph]
    for baked in sorted(artifact.baked, key=lambda record: record.operand):
        cuts = [f"{cut[0]} to {cut[1]}" if cut else "all" for cut in (baked.rows, baked.columns)]
        start = "" if baked.column_start is None else f" from {baked.column_start}"
        parts.append(f"{baked.operand} = {baked.weight} ({cuts[0]}; {cuts[1]}{start})")
    parts += [f"{name} = {number}" for name, number in sorted(artifact.numbers.items())]
    return ", ".join(parts)


def _check_federation(manifest: Manifest) -> None:
    federation = manifest.federation
    if federation is None:
        return
    names = [method.name for method in manifest.methods]
    if federation.method not in names:
        raise refused("federation.method", f"{federation.method!r}", f"one of {names}")
    if federation.noise == 0 and federation.budget is not None:
        raise refused(
            "federation.budget", f"{federation.budget} without noise", "null: what has no noise has no budget"
        )
    if federation.noise > 0 and federation.budget is None:
        raise refused("federation.budget", "null", "a number: noise without a budget protects nobody for long")


def _check_files(manifest: Manifest) -> None:
    named, listed = referenced_files(manifest), set(manifest.files)
    for name in sorted(named - listed):
        raise refused("files", f"no record of {name!r}", "one for each file that the manifest names")
    for name in sorted(listed - named):
        raise refused("files", f"{name!r}, which no field names", "files that a field names")

    folded: dict[str, str] = {}
    for name in sorted(listed):
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise refused("files", f"{other!r} and {name!r}", "names that differ in more than case")

    for name in listed:
        parts = name.casefold().split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in folded:
                raise refused("files", f"{name!r} inside a file", "files that are not folders")
        problem = file_name_problem(name)
        if problem:
            raise refused("files", f"a name that is {problem}", "a plain relative name")


def referenced_files(manifest: Manifest) -> set[str]:
    """The files that fields other than `files` name."""
    text, data = manifest.text, manifest.data
    single = [
        text.tokenizer,
        text.tokenizer_config,
        text.tokenizer_bin,
        text.turns,
        manifest.adapter,
        data.train,
        data.valid,
        data.behaviour,
        manifest.golden,
    ]

    names = {name for name in single if name is not None}
    names.update(record.file for record in manifest.weights)
    names.update(plan.record.file for plan in manifest.plans)
    names.update(graph.file for graph in manifest.graphs)
    names.update(artifact.file for target in manifest.targets for artifact in target.artifacts)
    names.update(manifest.licences)
    return names


def _check_lengths(manifest: Manifest) -> None:
    """Check that every plan is for one of the sequence lengths."""
    lengths = set(manifest.sequence_lengths)
    for method in manifest.methods:
        for _, variant in method.variants:
            for plan in variant.plans:
                if plan.sequence_length not in lengths:
                    raise refused(
                        f"methods.{method.name}", f"a plan for length {plan.sequence_length}", f"one of {lengths}"
                    )


def _check_budgets(manifest: Manifest) -> None:
    """Check that each smaller budget is smaller than the budget before it."""
    whole = manifest.budget.memory_bytes
    smaller_budgets = {
        f"methods.{method.name}.smaller_plans": [smaller.memory_bytes for smaller in method.smaller_plans]
        for method in manifest.methods
    }
    smaller_budgets["smaller_generation"] = [smaller.memory_bytes for smaller in manifest.smaller_generation]
    for path, smaller in smaller_budgets.items():
        budgets = [0 if whole is None else whole, *smaller]
        for larger, budget in pairwise(budgets):
            if budget >= larger:
                raise refused(path, f"plans for {budget} bytes", f"fewer than {larger}, the budget before it")


def _check_frozen(manifest: Manifest) -> None:
    """Check that an A that is not trained is a weight, in the file of the initial adapter."""
    file = next((record.file for record in manifest.weights if record.group == ADAPTER_GROUP), None)
    expected = manifest.adapter if manifest.lora.train == "B" else None
    if file != expected:
        got, wanted = ("no group" if name is None else f"a group of {name!r}" for name in (file, expected))
        raise refused("weights", f"{got} '{ADAPTER_GROUP}'", f"{wanted}, as lora.train says")


def _check_artifacts(manifest: Manifest, target: TargetRecord) -> None:
    """Check each artifact's operands and weights against its graph."""
    graphs = {graph.key: graph for graph in manifest.graphs}
    groups = {record.group for record in manifest.weights}
    every_operand = manifest.format_version.minor >= ADDED["targets.artifacts.numbers"]

    for artifact in target.artifacts:
        graph = graphs.get(artifact.graph)
        if graph is None:
            raise refused(f"targets.{target.name}", f"an artifact of graph {artifact.graph}", "a graph of graphs")
        path = f"targets.{target.name}.{graph.name}"

        taken = {*artifact.operands, *artifact.numbers, *(baked.operand for baked in artifact.baked)}
        foreign = taken - {spec.name for spec in graph.inputs}
        if foreign:
            raise refused(path, f"the operand {min(foreign)!r}", "its operands")
        _check_baked(artifact, groups, path)

        left = [spec.name for spec in graph.inputs if spec.name not in taken]
        if every_operand and left:
            raise refused(
                path, f"the operand {left[0]!r} neither taken nor part of it", "each operand of the graph once"
            )


def _check_baked(artifact: ArtifactRecord, groups: set[str], path: str) -> None:
    """Check that no operand is taken and baked, and that weights and ranges exist."""
    taken = set(artifact.operands)
    for name in artifact.numbers:
        if name in taken:
            raise refused(f"{path}.numbers", f"the operand {name!r} twice", "each of them once, taken or a number")
        taken.add(name)
    for baked in artifact.baked:
        if baked.operand in taken:
            raise refused(f"{path}.baked", f"the operand {baked.operand!r} twice", "each of them once, taken or baked")
        taken.add(baked.operand)
        group, _, tensor = baked.weight.partition(".")
        if group not in groups or not tensor:
            raise refused(f"{path}.baked", f"the weight {baked.weight!r}", "a tensor of a group of weights")
        for name, cut in (("rows", baked.rows), ("columns", baked.columns)):
            if cut is not None and cut[0] >= cut[1]:
                raise refused(f"{path}.baked.{name}", f"{cut[0]} to {cut[1]}", "a range that is not empty")


def _check_features(target: TargetRecord) -> None:
    """Check that no two features are for the same tensors, and that sizes agree with the view."""
    seen = set()
    for number, feature in enumerate(target.features):
        path = f"targets.{target.name}.features.{number}"
        tensor = (feature.tensor_dtype, feature.tensor_shape)
        if tensor in seen:
            raise refused(path, f"{feature.tensor_dtype} {list(feature.tensor_shape)} twice", "each of them once")
        seen.add(tensor)
        sizes = [_count(path, shape) for shape in (feature.tensor_shape, feature.shape)]
        if feature.view == "bytes":
            sizes = [
                size * _BYTES[dtype] for size, dtype in zip(sizes, (feature.tensor_dtype, feature.dtype), strict=True)
            ]
        if sizes[0] != sizes[1]:
            what = "bytes" if feature.view == "bytes" else "elements"
            raise refused(path, f"{sizes[1]} {what} for {sizes[0]}", f"as many {what} as the tensor has")
        if feature.view == "same" and feature.dtype != feature.tensor_dtype:
            raise refused(
                path, f"{feature.dtype} for {feature.tensor_dtype}", f"{feature.tensor_dtype}, or another view"
            )


def _count(path: str, shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
        if count > MAX_COUNT:
            raise refused(path, f"a shape of more than {MAX_COUNT} elements", "fewer")
    return count


def refused(path: str, got: str, expected: str) -> BundleError:
    """The error about a field of the manifest; an empty path is the whole document."""
    return BundleError(
        f"{SUBJECT}: {path}" if path else SUBJECT,
        got=got,
        expected=expected,
        next_step="Get the bundle again from where it was built, or build it again",
    )
