# SPDX-License-Identifier: Apache-2.0
"""A bundle as stored zips, and back: for transport, and read in place.

Two zips, so that a new method does not resend the weights: `weights.zip` holds the weight files, `method.zip` all the
rest with the manifest, which vouches for both. Their form is that of `bespoke.bundle.stored_zip`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bespoke.bundle.reader import open_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.errors import BundleError
from bespoke.format.whole_folder import WholeFolder

__all__ = ["pack", "unpack"]


def pack(bundle: Path | str, out: Path | str) -> tuple[Path, Path]:
    """Write `weights.zip` and `method.zip` of a bundle's folder into the folder `out`; returns their paths.

    Every file is checked against the manifest first. BundleError for a damaged bundle or a zip of 4 GiB and more.
    """
    folder, target = Path(bundle), Path(out)
    with open_bundle(folder) as opened:
        opened.verify_files()
        weights = {record.file for record in opened.manifest.weights}
        rest = (set(opened.manifest.files) - weights) | set(opened.unlisted)
    target.mkdir(parents=True, exist_ok=True)
    paths = target / "weights.zip", target / "method.zip"
    for path, names in zip(paths, (weights, rest), strict=True):
        write_zip(path, ((name, folder / name) for name in sorted(names)))
    return paths


def unpack(archives: Path | str | Iterable[Path | str], folder: Path | str) -> Path:
    """Write the files of a bundle's zips into the new folder `folder`, which appears once every hash is checked."""
    given = archives if isinstance(archives, str | os.PathLike) else list(archives)
    with open_bundle(given) as opened:
        whole = WholeFolder(folder, BundleError, _not_free)
        try:
            for name in (*opened.unlisted, *opened.names):
                path = whole.work / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    for chunk in opened.chunks(name):
                        file.write(chunk)
            return whole.finish()
        except OSError as problem:
            raise _refused(str(whole.target), problem.strerror or "no folder", "a free name on a disk with room") from None
        finally:
            whole.abandon()


def _not_free(folder: Path) -> None:
    raise _refused(str(folder), "something of that name", "a free name")


def _refused(subject: str, got: str, expected: str) -> BundleError:
    return BundleError(subject, got=got, expected=expected, next_step="Give another folder")
