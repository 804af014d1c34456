# SPDX-License-Identifier: Apache-2.0
"""The bytes of manifest.json: written in a single way, and read with every field present and every reference checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from bespoke.bundle.file_names import MANIFEST_FILE
from bespoke.bundle.manifest import ADDED, BEFORE, FORMAT, MAJOR, MINOR, Manifest
from bespoke.bundle.manifest_check import SUBJECT, check_manifest, refused
from bespoke.config import expected_of
from bespoke.errors import BundleError, BundleVersionError, kind_of
from bespoke.format.json_strict import dumps_canonical, loads_strict, shown_json

__all__ = ["MAX_MANIFEST_BYTES", "manifest_bytes", "manifest_sum", "read_manifest"]

MAX_MANIFEST_BYTES = 8 * 2**20
_MOST_SHOWN = 10  # fields at fault that an error names


def manifest_bytes(manifest: Manifest) -> bytes:
    """The canonical text of a manifest: sorted keys, a member a line, UTF-8."""
    try:
        return dumps_canonical(manifest.model_dump(mode="json"), indent=1)
    except ValueError:
        raise refused("", "an infinite number or NaN", "finite numbers") from None


def manifest_sum(data: bytes) -> bytes:
    """The content of `manifest.sha256`, as `sha256sum` writes it. It reveals damage; an attack takes a pin or a key."""
    return f"{hashlib.sha256(data).hexdigest()}  {MANIFEST_FILE}\n".encode()


def read_manifest(
    data: bytes,
    *,
    kind: type[Manifest] = Manifest,
    minor: int = MINOR,
    added: Mapping[str, int] = ADDED,
) -> Manifest:
    """Read a manifest. Raises BundleVersionError for another format, BundleError naming the field for any other problem.

    `kind`, `minor` and `added` are the reader's model, version and table of later fields.
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
            raise refused(
                path, "a value", f"nothing: format {MAJOR}.{written} does not have it (it came with {MAJOR}.{since})"
            )
        if since <= written and not present:
            raise refused(path, "nothing", "a value: every field is required")

    check_manifest(manifest)
    return _with_old_values(manifest, written)


def _with_old_values(manifest: Manifest, written: int) -> Manifest:
    """The manifest with BEFORE's values for settings that came after minor version `written`."""
    settings = "methods.training."
    old_values = {path.removeprefix(settings): value for path, value in BEFORE.items() if ADDED[path] > written}
    if not old_values:
        return manifest
    methods = tuple(
        method.model_copy(update={"training": method.training.model_copy(update=old_values)})
        for method in manifest.methods
    )
    return manifest.model_copy(update={"methods": methods})


def _version(document: Any, own_minor: int) -> int:
    """The minor version of the document. Raises BundleVersionError if this reader does not accept it."""
    if not isinstance(document, dict):
        raise refused("", kind_of(document), "an object")
    for field in ("format", "format_version"):
        if field not in document:
            raise refused(field, "nothing", "a value: every field is required")
    if document["format"] != FORMAT:
        raise refused("format", shown_json(document["format"]), f"'{FORMAT}'")
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
        raise refused(f"format_version.{part}", "nothing" if number is None else shown_json(number), "a whole number")
    return number


def _fields(record: BaseModel, path: str, kind: str, added: Mapping[str, int]) -> Iterator[tuple[str, int, bool]]:
    """(path, minor version that brought it, whether the document has it) of every field, nested fields included."""
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


def _from_pydantic(problem: ValidationError) -> BundleError:
    """An error that names the fields at fault, ten at most."""
    entries = problem.errors(include_url=False)
    places = {entry["loc"] for entry in entries}
    within = {place[:length] for place in places for length in range(len(place))}
    entries = [entry for entry in entries if entry["loc"] not in within]  # a list with a bad entry is called too short
    shown = []
    for entry in entries[:_MOST_SHOWN]:
        path = ".".join(str(part)[:100] for part in entry["loc"])
        kind = entry["type"]
        value = "nothing" if kind == "missing" else shown_json(entry["input"])
        wanted = {
            "missing": "a value: every field is required",
            "extra_forbidden": "no such field",
        }.get(kind, expected_of(entry)[:200])
        shown.append((path, value, wanted))
    if len(shown) == 1:
        return refused(*shown[0])
    return refused(
        f"{len(entries)} fields, {', '.join(path for path, _, _ in shown)}",
        "; ".join(f"{path} = {value}" for path, value, _ in shown),
        "; ".join(f"{path}: {wanted}" for path, _, wanted in shown),
    )
