# SPDX-License-Identifier: Apache-2.0
"""The bytes of manifest.json: written in one way only, and read with every field present and every reference kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, ValidationError

from bespoke.bundle.manifest import (
    ADDED,
    BEFORE,
    FORMAT,
    MAJOR,
    MANIFEST_FILE,
    MAX_COUNT,
    MAX_MANIFEST_BYTES,
    MINOR,
    ArtifactRecord,
    GraphRecord,
    Manifest,
    TargetRecord,
    file_name_problem,
)
from bespoke.config import expected_of
from bespoke.errors import BundleError, BundleVersionError, kind_of
from bespoke.format.json_strict import dumps_canonical, loads_strict, shown_json
from bespoke.plan.instructions import DTYPE_BYTES
from bespoke.plan.kinds import ADAPTER_GROUP

__all__ = ["check_manifest", "manifest_bytes", "manifest_schema", "manifest_sum", "read_manifest", "referenced_files"]

SUBJECT = MANIFEST_FILE
_SHOWN = 10
_BYTES = {**DTYPE_BYTES, "int32": 4, "int8": 1}  # of an element


def manifest_bytes(manifest: Manifest) -> bytes:
    """The one text of a manifest: sorted keys, one member a line, UTF-8."""
    try:
        return dumps_canonical(manifest.model_dump(mode="json"), indent=1)
    except ValueError:
        raise _refused("", "an infinite number or NaN", "finite numbers") from None


def manifest_sum(data: bytes) -> bytes:
    """What `manifest.sha256` holds, in the form of `sha256sum`. It shows damage, not an attack: that takes a pin or a key."""
    return f"{hashlib.sha256(data).hexdigest()}  {MANIFEST_FILE}\n".encode()


def read_manifest(
    data: bytes,
    *,
    kind: type[Manifest] = Manifest,
    minor: int = MINOR,
    added: Mapping[str, int] = ADDED,
) -> Manifest:
    """The manifest in `data`; BundleVersionError for another format, BundleError naming the field for anything else.

    `kind`, `minor` and `added` are this reader's own model, version and table of later fields.
    """
    document = loads_strict(
        data, subject=SUBJECT, error=BundleError, max_bytes=MAX_MANIFEST_BYTES, max_depth=16, max_items=500_000
    )
    written = _version(document, minor)
    try:
        manifest = kind.model_validate_json(data)
    except ValidationError as problem:
        raise _from_pydantic(problem) from None
    for path, since, present in _fields(manifest, "", "", added):
        if since > written and present:
            raise _refused(
                path, "a value", f"nothing: format {MAJOR}.{written} does not have it (it came with {MAJOR}.{since})"
            )
        if since <= written and not present:
            raise _refused(path, "nothing", "a value: every field is required")
    check_manifest(manifest)
    return _as_meant(manifest, written)


def _as_meant(manifest: Manifest, written: int) -> Manifest:
    """With what a document of minor version `written` means by settings of runs that it does not have yet."""
    settings = "methods.training."
    meant = {path.removeprefix(settings): value for path, value in BEFORE.items() if ADDED[path] > written}
    if not meant:
        return manifest
    methods = tuple(
        method.model_copy(update={"training": method.training.model_copy(update=meant)}) for method in manifest.methods
    )
    return manifest.model_copy(update={"methods": methods})


def check_manifest(manifest: Manifest) -> None:
    """BundleError if the parts of a manifest contradict each other: names twice, references that lead nowhere."""
    for path, names in _unique_names(manifest):
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise _refused(path, f"{twice!r} twice", "each of them once")
    _check_files(manifest)
    lengths = set(manifest.sequence_lengths)
    for method in manifest.methods:
        for _, variant in method.variants:
            for plan in variant.plans:
                if plan.sequence_length not in lengths:
                    raise _refused(
                        f"methods.{method.name}", f"a plan for length {plan.sequence_length}", f"one of {lengths}"
                    )
    _check_budgets(manifest)
    _check_frozen(manifest)
    graphs = {graph.key: graph for graph in manifest.graphs}
    groups = {record.group for record in manifest.weights}
    for target in manifest.targets:
        for artifact in target.artifacts:
            graph = graphs.get(artifact.graph)
            if graph is None:
                raise _refused(f"targets.{target.name}", f"an artifact of graph {artifact.graph}", "a graph of graphs")
            path = f"targets.{target.name}.{graph.name}"
            taken = {*artifact.operands, *artifact.numbers, *(baked.operand for baked in artifact.baked)}
            foreign = taken - {spec.name for spec in graph.inputs}
            if foreign:
                raise _refused(path, f"the operand {min(foreign)!r}", "its operands")
            _check_baked(artifact, groups, path)
            left = (
                [] if manifest.format_version.minor < ADDED["targets.artifacts.numbers"] else _left_out(artifact, graph)
            )
            if left:
                raise _refused(
                    path, f"the operand {left[0]!r} neither taken nor part of it", "each operand of the graph once"
                )
        _check_features(target)


def _check_budgets(manifest: Manifest) -> None:
    """Each of the smaller budgets is smaller than the one before it."""
    whole = manifest.budget.memory_bytes
    named = {
        f"methods.{one.name}.smaller_plans": [plans.memory_bytes for plans in one.smaller_plans]
        for one in manifest.methods
    }
    named["smaller_generation"] = [one.memory_bytes for one in manifest.smaller_generation]
    for path, smaller in named.items():
        budgets = [0 if whole is None else whole, *smaller]
        for larger, budget in pairwise(budgets):
            if budget >= larger:
                raise _refused(path, f"plans for {budget} bytes", f"fewer than {larger}, the budget before it")


def _check_frozen(manifest: Manifest) -> None:
    """What is not trained is a weight, of the very file that states and exports take it from."""
    found = next((record.file for record in manifest.weights if record.group == ADAPTER_GROUP), None)
    expected = manifest.adapter if manifest.lora.train == "B" else None
    if found != expected:
        shown = ["no group" if file is None else f"a group of {file!r}" for file in (found, expected)]
        raise _refused("weights", f"{shown[0]} '{ADAPTER_GROUP}'", f"{shown[1]}, as lora.train says")


def _check_baked(artifact: ArtifactRecord, groups: set[str], path: str) -> None:
    taken = set(artifact.operands)
    for name in artifact.numbers:
        if name in taken:
            raise _refused(f"{path}.numbers", f"the operand {name!r} twice", "each of them once, taken or a number")
        taken.add(name)
    for baked in artifact.baked:
        if baked.operand in taken:
            raise _refused(f"{path}.baked", f"the operand {baked.operand!r} twice", "each of them once, taken or baked")
        taken.add(baked.operand)
        group, _, tensor = baked.weight.partition(".")
        if group not in groups or not tensor:
            raise _refused(f"{path}.baked", f"the weight {baked.weight!r}", "a tensor of a group of weights")
        for name, cut in (("rows", baked.rows), ("columns", baked.columns)):
            if cut is not None and cut[0] >= cut[1]:
                raise _refused(f"{path}.baked.{name}", f"{cut[0]} to {cut[1]}", "a range that is not empty")


def _left_out(artifact: ArtifactRecord, graph: GraphRecord) -> list[str]:
    """Operands of the graph that a call would give to nobody."""
    known = {*artifact.operands, *artifact.numbers, *(baked.operand for baked in artifact.baked)}
    return [spec.name for spec in graph.inputs if spec.name not in known]


def _check_features(target: TargetRecord) -> None:
    """Each is of tensors of its own, and as large as its view says."""
    seen = set()
    for number, feature in enumerate(target.features):
        path = f"targets.{target.name}.features.{number}"
        tensor = (feature.tensor_dtype, feature.tensor_shape)
        if tensor in seen:
            raise _refused(path, f"{feature.tensor_dtype} {list(feature.tensor_shape)} twice", "each of them once")
        seen.add(tensor)
        sizes = [_count(path, shape) for shape in (feature.tensor_shape, feature.shape)]
        if feature.view == "bytes":
            sizes = [
                size * _BYTES[dtype] for size, dtype in zip(sizes, (feature.tensor_dtype, feature.dtype), strict=True)
            ]
        if sizes[0] != sizes[1]:
            what = "bytes" if feature.view == "bytes" else "elements"
            raise _refused(path, f"{sizes[1]} {what} for {sizes[0]}", f"as many {what} as the tensor has")
        if feature.view == "same" and feature.dtype != feature.tensor_dtype:
            raise _refused(
                path, f"{feature.dtype} for {feature.tensor_dtype}", f"{feature.tensor_dtype}, or another view"
            )


def _count(path: str, shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
        if count > MAX_COUNT:
            raise _refused(path, f"a shape of more than {MAX_COUNT} elements", "fewer")
    return count


def referenced_files(manifest: Manifest) -> set[str]:
    """Every file that a field other than `files` names."""
    text, data = manifest.text, manifest.data
    single = [
        text.tokenizer,
        text.tokenizer_config,
        text.tokenizer_bin,
        text.turns,
        manifest.adapter,
        data.train,
        data.valid,
        manifest.golden,
    ]
    names = {name for name in single if name is not None}
    names.update(record.file for record in manifest.weights)
    names.update(plan.record.file for plan in manifest.plans)
    names.update(graph.file for graph in manifest.graphs)
    names.update(artifact.file for target in manifest.targets for artifact in target.artifacts)
    names.update(manifest.licences)
    return names


def manifest_schema() -> dict[str, Any]:
    """JSON Schema of the manifest of today, in which every property is required and none has a default.

    `x-since-minor`: documents of earlier minors must not have the property.
    """
    schema = Manifest.model_json_schema()
    for path, since in ADDED.items():
        _property(schema, path)["x-since-minor"] = since
    for part in (schema, *schema.get("$defs", {}).values()):
        properties = part.get("properties", {})
        for field in properties.values():
            field.pop("default", None)
        if properties:
            part["required"] = sorted(properties)
    return schema


def _property(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The part of the schema that a path of ADDED names."""
    part = schema
    for name in path.split("."):
        part = part.get("items") or part.get("additionalProperties") or part
        part = schema["$defs"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
        part = part["properties"][name]
    return part


def _version(document: Any, own_minor: int) -> int:
    """The minor version of the document, once it is known to be one that this reader takes."""
    if not isinstance(document, dict):
        raise _refused("", kind_of(document), "an object")
    for field in ("format", "format_version"):
        if field not in document:
            raise _refused(field, "nothing", "a value: every field is required")
    if document["format"] != FORMAT:
        raise _refused("format", shown_json(document["format"]), f"'{FORMAT}'")
    version = document["format_version"]
    major, written = _whole(version, "major"), _whole(version, "minor")
    if major != MAJOR or not 0 <= written <= own_minor:
        raise BundleVersionError(
            f"{SUBJECT}: format_version",
            got=f"{major}.{written}",
            expected=f"{MAJOR}.0 to {MAJOR}.{own_minor}",
            next_step="Update bespoke-sdk in the app, or build the bundle with the version that the app has",
        )
    return written


def _whole(version: Any, part: str) -> int:
    number = version.get(part) if isinstance(version, dict) else version
    if type(number) is not int:
        raise _refused(f"format_version.{part}", "nothing" if number is None else shown_json(number), "a whole number")
    return number


def _fields(record: BaseModel, path: str, kind: str, added: Mapping[str, int]) -> Iterator[tuple[str, int, bool]]:
    """(path, minor that brought it, whether it was given) of every field, nested ones included."""
    for name in type(record).model_fields:
        where, table = f"{path}{name}", f"{kind}{name}"
        yield where, added.get(table, 0), name in record.model_fields_set
        value = getattr(record, name)
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, tuple) else ()
        if isinstance(value, BaseModel):
            yield from _fields(value, f"{where}.", f"{table}.", added)
        for key, entry in entries:
            if isinstance(entry, BaseModel):
                yield from _fields(entry, f"{where}.{key}.", f"{table}.", added)


def _unique_names(manifest: Manifest) -> Iterator[tuple[str, list[Any]]]:
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
    """What calls it serves: of a graph, or of a graph with these weights."""
    parts = [artifact.graph]
    for baked in sorted(artifact.baked, key=lambda record: record.operand):
        cuts = [f"{cut[0]} to {cut[1]}" if cut else "all" for cut in (baked.rows, baked.columns)]
        start = "" if baked.column_start is None else f" from {baked.column_start}"
        parts.append(f"{baked.operand} = {baked.weight} ({cuts[0]}; {cuts[1]}{start})")
    parts += [f"{name} = {number}" for name, number in sorted(artifact.numbers.items())]
    return ", ".join(parts)


def _check_files(manifest: Manifest) -> None:
    named, listed = referenced_files(manifest), set(manifest.files)
    for name in sorted(named - listed):
        raise _refused("files", f"no record of {name!r}", "one for each file that the manifest names")
    for name in sorted(listed - named):
        raise _refused("files", f"{name!r}, which no field names", "files that a field names")
    folded: dict[str, str] = {}
    for name in sorted(listed):
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise _refused("files", f"{other!r} and {name!r}", "names that differ in more than case")
    for name in listed:
        parts = name.casefold().split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in folded:
                raise _refused("files", f"{name!r} inside a file", "files that are not folders")
        problem = file_name_problem(name)
        if problem:
            raise _refused("files", f"a name that is {problem}", "a plain relative name")


def _from_pydantic(problem: ValidationError) -> BundleError:
    """One error that names every field at fault (the first ten)."""
    entries = problem.errors(include_url=False)
    places = {entry["loc"] for entry in entries}
    within = {place[:length] for place in places for length in range(len(place))}
    entries = [entry for entry in entries if entry["loc"] not in within]  # a list with a bad entry is called too short
    shown = []
    for entry in entries[:_SHOWN]:
        path = ".".join(str(part)[:100] for part in entry["loc"])
        kind = entry["type"]
        value = "nothing" if kind == "missing" else shown_json(entry["input"])
        wanted = {
            "missing": "a value: every field is required",
            "extra_forbidden": "no such field",
        }.get(kind, expected_of(entry)[:200])
        shown.append((path, value, wanted))
    if len(shown) == 1:
        return _refused(*shown[0])
    return _refused(
        f"{len(entries)} fields, {', '.join(path for path, _, _ in shown)}",
        "; ".join(f"{path} = {value}" for path, value, _ in shown),
        "; ".join(f"{path}: {wanted}" for path, _, wanted in shown),
    )


def _refused(path: str, got: str, expected: str) -> BundleError:
    return BundleError(
        f"{SUBJECT}: {path}" if path else SUBJECT,
        got=got,
        expected=expected,
        next_step="Get the bundle again from where it was built, or build it again",
    )
