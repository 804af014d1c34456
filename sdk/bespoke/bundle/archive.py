# SPDX-License-Identifier: Apache-2.0
"""A bundle as stored zips: for transport, and read in place.

Two zips, so that a new method does not resend the weights: `weights.zip` holds the weight files, `method.zip` all the
rest with the manifest, which vouches for both. `delta.zip` makes one bundle of another: it holds the manifest and the files that
differ. `bundle.zip` holds all of it: one file, as an app's asset has to be. Their form is that of `bespoke.bundle.stored_zip`;
`bespoke.install` makes a folder of them.
"""

from __future__ import annotations

from pathlib import Path

from bespoke import arguments
from bespoke.bundle.reader import open_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BundleError, ConfigError
from bespoke.format.whole_folder import usable_folder

__all__ = ["pack"]


def pack(
    bundle: Path | str, out: Path | str, since: Path | str | None = None, *, whole: bool = False
) -> tuple[Path, ...]:
    """Write `weights.zip` and `method.zip` of a bundle's folder into the folder `out`; returns their paths.

    since:  an older bundle. `delta.zip` is written in their place: what differs from that one.
    whole:  `bundle.zip` is written in their place, with all files: an app's asset

    Every file is checked against the manifest first. BundleError for a damaged bundle or a zip of 4 GiB and more, ConfigError
    for `since` and `whole` together.
    """
    if whole and since is not None:
        raise ConfigError("pack", got="since and whole", expected="one of them", next_step="Call it once for each")
    folder, target = arguments.folder("bundle", bundle), arguments.folder("out", out)
    with open_bundle(folder) as opened:
        opened.verify_files()
        files, unlisted = opened.manifest.files, set(opened.unlisted)
        weights = {record.file for record in opened.manifest.weights} - {opened.manifest.adapter}
    if whole:
        zips = {"bundle.zip": set(files) | unlisted}
    elif since is None:
        zips = {"weights.zip": weights, "method.zip": (set(files) - weights) | unlisted}
    else:
        with open_bundle(since) as older:
            known = older.manifest.files
        zips = {"delta.zip": {name for name, record in files.items() if known.get(name) != record} | unlisted}
    target = usable_folder(target, BundleError)
    for zip_name, names in zips.items():
        write_zip(target / zip_name, ((name, folder / name) for name in sorted(names)))
    return tuple(target / zip_name for zip_name in zips)
