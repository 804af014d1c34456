# SPDX-License-Identifier: Apache-2.0
"""Packer of a bundle into stored zips, for transport or to be read in place.

There are two zips, so a new method does not resend the weights. `weights.zip` holds the weight files. `method.zip` holds all
other files, among them the manifest with the hashes of both. `delta.zip` turns an older bundle into this one: it holds the
manifest and the files that differ. `bundle.zip` holds all files, for an app that needs a single asset. The format is that of
`bespoke.bundle.stored_zip`. `bespoke.install` unpacks them into a folder.
"""

from __future__ import annotations

from pathlib import Path

from bespoke import arguments
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BundleError, ConfigError
from bespoke.format.whole_folder import usable_folder

__all__ = ["pack"]


def pack(
    bundle: Path | str, out: Path | str, since: Path | str | None = None, *, whole: bool = False
) -> tuple[Path, ...]:
    """Write `weights.zip` and `method.zip` of a bundle's folder into the folder `out`; returns their paths.

    Every file is checked against the manifest first. Raises BundleError for a damaged bundle or a zip of 4 GiB and more,
    ConfigError for `since` and `whole` together.

    Args:
        bundle: The bundle's folder.
        out: The folder to write to. It is created if it does not exist.
        since: An older bundle. If given, `delta.zip` with the differing files is written instead.
        whole: Write `bundle.zip` with all files instead, for an app's single asset.
    """
    if whole and since is not None:
        raise ConfigError("pack", got="since and whole", expected="one of them", next_step="Call it once for each")
    folder, target = arguments.folder("bundle", bundle), arguments.folder("out", out)
    with read_bundle(folder) as opened:
        opened.verify_files()
        files, unlisted = opened.manifest.files, set(opened.unlisted)
        weights = {record.file for record in opened.manifest.weights} - {opened.manifest.adapter}

    if whole:
        zips = {"bundle.zip": set(files) | unlisted}
    elif since is None:
        zips = {"weights.zip": weights, "method.zip": (set(files) - weights) | unlisted}
    else:
        with read_bundle(since) as older:
            known = older.manifest.files
        zips = {"delta.zip": {name for name, record in files.items() if known.get(name) != record} | unlisted}

    target = usable_folder(target, BundleError)
    for zip_name, names in zips.items():
        write_zip(target / zip_name, ((name, folder / name) for name in sorted(names)))
    return tuple(target / zip_name for zip_name in zips)
