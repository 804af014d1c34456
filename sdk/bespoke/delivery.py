# SPDX-License-Identifier: Apache-2.0
"""Installs a bundle from its archives with the device core, as an app does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bespoke import arguments
from bespoke.bundle.signature import check_trust, raw_public_key
from bespoke.core.library import COptions, CText, load, struct, text

__all__ = ["install"]


def install(
    archives: Path | str | Sequence[Path | str],
    folder: Path | str,
    *,
    pin_sha256: str | None = None,
    public_key: bytes | None = None,
    require_authenticated: bool = False,
) -> Path:
    """Installs a bundle from its archives, replaces an older bundle in its place, and returns the folder.

    Files that the archives lack come from the older bundle, if their hash fits. So you can ship a delta, or a new method for the
    same weights. If the process is killed, the old bundle or the new one is there, complete.

    Args:
        archives: One path, or several.
        folder: Where the bundle goes. An older bundle there is replaced.
        pin_sha256: sha256 that manifest.json must have, as for `PersonalModel.open`.
        public_key: ed25519 key that must have signed manifest.json, as for `PersonalModel.open`.
        require_authenticated: Refuse a bundle without a pin and without a key.

    Raises BundleError for damaged archives, and for archives that make no complete bundle with the older one. Nothing is changed
    then.
    """
    given = archives if isinstance(archives, Sequence) and not isinstance(archives, str | bytes) else [archives]
    paths = [os.fspath(arguments.folder("archives", archive)) for archive in given]
    target = arguments.folder("folder", folder)
    check_trust(pin_sha256, public_key)

    options = struct(
        COptions,
        pin_sha256=pin_sha256 or "",
        public_key=None if public_key is None else raw_public_key(public_key),
        require_authenticated=int(require_authenticated),
    )
    given_paths = (CText * len(paths))(*map(text, paths))
    load().call("bespoke_install", given_paths, len(paths), text(os.fspath(target)), options, None)
    return target
