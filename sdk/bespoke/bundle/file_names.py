# SPDX-License-Identifier: Apache-2.0
"""Names of a bundle's files: the ones that are fixed, and the rule for all others."""

from __future__ import annotations

import re

__all__ = ["MANIFEST_FILE", "MAX_FILES", "RESERVED", "SIGNATURE_FILE", "SUM_FILE", "file_name_problem"]

MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE = "manifest.json", "manifest.sha256", "signature"
RESERVED = frozenset({MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE})  # in addition to the files that the manifest lists
MAX_FILES = 16_384

_COMPONENT = re.compile(r"[A-Za-z0-9_@+=-][A-Za-z0-9_.@+=-]*")


def file_name_problem(name: str) -> str:
    """Why `name` cannot name a file of a bundle; empty if it can.

    Only ASCII letters are allowed: no file system normalises such a name into another. No component begins with a dot.
    """
    components = name.split("/")
    if len(name) > 255 or len(components) > 8:
        return "longer than 255 characters or 8 folders"
    if name.casefold() in RESERVED:
        return "reserved for the bundle itself"
    if not all(_COMPONENT.fullmatch(component) for component in components):
        return "not a relative path of letters, digits and _.@+=- (no '..', no backslash, no leading dot)"
    return ""
