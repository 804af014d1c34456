# SPDX-License-Identifier: Apache-2.0
"""align.py IN.apk OUT.apk: what an app maps out of its APK, at a multiple of 16,384 bytes.

That is every stored lib/**.so, which Android 15 loads from there into pages of 16 KB, and every stored bundle (*.zip). All else
that is stored begins at a multiple of 4, as Android wants of resources.arsc. Debian's zipalign knows pages of 4 KB only. The
padding is an extra field that names its multiple, as apksig writes it, so that who signs the APK afterwards keeps to it.
"""

import copy
import shutil
import struct
import sys
import zipfile
from pathlib import Path

PAGE, WORD = 16_384, 4
PADDING = 0xD935  # of apksig: its length, the multiple, and zeros
HEADER, SMALLEST = 30, 6  # bytes of a local header before the name, of an extra field with a multiple in it


def multiple_for(entry: zipfile.ZipInfo) -> int:
    if entry.compress_type != zipfile.ZIP_STORED:
        return 1
    is_mapped = (entry.filename.startswith("lib/") and entry.filename.endswith(".so")) or entry.filename.endswith(
        ".zip"
    )
    return PAGE if is_mapped else WORD


def padding(begin: int, multiple: int) -> bytes:
    """An extra field after which data that would begin at this byte begins at a multiple."""
    if multiple == 1:
        return b""
    length = SMALLEST + -(begin + SMALLEST) % multiple
    return struct.pack("<3H", PADDING, length - 4, multiple).ljust(length, b"\0")


def align(source: Path, target: Path) -> None:
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(target, "w") as out:
        assert out.fp is not None
        for entry in given.infolist():
            kept = copy.copy(entry)
            kept.flag_bits &= 0x800  # UTF-8 names; sizes stand before the data
            kept.extra = padding(out.fp.tell() + HEADER + len(entry.filename.encode()), multiple_for(entry))
            with given.open(entry) as data, out.open(kept, "w") as copied:
                shutil.copyfileobj(data, copied, 1 << 20)
            kept.extra = b""  # the central directory has no need of it


if __name__ == "__main__":
    align(Path(sys.argv[1]), Path(sys.argv[2]))
