# SPDX-License-Identifier: Apache-2.0
"""Installing a bundle from its archives, by the code that does it in an app: the device core's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bespoke import arguments
from bespoke.bundle.signature import check_trust, raw_public_key
from bespoke.core.library import Options, Text, load, made, text

__all__ = ["install"]


def install(
    archives: Path | str | Sequence[Path | str],
    folder: Path | str,
    *,
    pin_sha256: str | None = None,
    public_key: bytes | None = None,
    require_authenticated: bool = False,
) -> Path:
    """Makes the bundle `folder` of its archives, in the place of an older bundle or of nothing, and returns it.

    Files that the archives lack are taken from the bundle that is there, where their hash fits: so a delta is installed, or a new
    method for the same weights. Killed anywhere, it leaves the old bundle or the new one, whole.

    pin_sha256, public_key, require_authenticated:  what must hold of manifest.json, as for `PersonalModel.open`

    BundleError, and nothing changed, for archives that are damaged, or that with the old bundle make no whole one.
    """
    given = archives if isinstance(archives, Sequence) and not isinstance(archives, str | bytes) else [archives]
    paths = [os.fspath(arguments.folder("archives", archive)) for archive in given]
    target = arguments.folder("folder", folder)
    check_trust(pin_sha256, public_key)
    options = made(
        Options,
        pin_sha256=pin_sha256 or "",
        public_key=None if public_key is None else raw_public_key(public_key),
        require_authenticated=int(require_authenticated),
    )
    load().call("bespoke_install", (Text * len(paths))(*map(text, paths)), len(paths), text(os.fspath(target)), options)
    return target
