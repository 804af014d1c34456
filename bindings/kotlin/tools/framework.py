# SPDX-License-Identifier: Apache-2.0
"""framework.py ANDROID_ALL.jar OUT.apk: the framework's resources, in encodings that Debian's aapt2 (of Android 10) can read.

Robolectric's android-all has the resources.arsc of its API level with sparse types, 16-bit offsets, compact entries, staged
aliases and a second package behind feature flags (ResourceTypes.h of AOSP). This writes them out plainly, so that
`aapt2 link -I OUT.apk` knows every attribute.
"""

import struct
import sys
import zipfile
from collections.abc import Iterator

STRINGS, TABLE, PACKAGE, TYPE, SPEC, LIBRARY = 0x1, 0x2, 0x200, 0x201, 0x202, 0x203
NONE = 0xFFFFFFFF
SPARSE, OFFSET_16 = 1, 2  # flags of a type
BAG, COMPACT = 1, 8  # flags of an entry


def chunks(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """(kind, size of the header, all of it) of each chunk."""
    while start < end:
        kind, header, size = struct.unpack_from("<HHI", data, start)
        yield kind, header, data[start : start + size]
        start += size


def plain_entry(data: bytes, at: int) -> bytes:
    size, flags, key = struct.unpack_from("<HHI", data, at)
    if flags & COMPACT:  # its size field is the key, the high byte of its flags the value's type
        return struct.pack("<HHI", 8, flags & 0xFF & ~COMPACT, size) + struct.pack("<HBBI", 8, 0, flags >> 8, key)
    if flags & BAG:
        (count,) = struct.unpack_from("<I", data, at + 12)
        return data[at : at + size + 12 * count]
    return data[at : at + size + 8]


def plain_type(chunk: bytes, header: int, total: int) -> bytes:
    number, flags, _, count, start = struct.unpack_from("<BBHII", chunk, 8)
    offsets = [NONE] * max(total, 0 if flags & SPARSE else count)
    if flags & SPARSE:
        for i in range(count):
            index, offset = struct.unpack_from("<HH", chunk, header + 4 * i)
            offsets[index] = offset * 4
    elif flags & OFFSET_16:
        for i, offset in enumerate(struct.unpack_from(f"<{count}H", chunk, header)):
            offsets[i] = NONE if offset == 0xFFFF else offset * 4
    else:
        offsets[:count] = struct.unpack_from(f"<{count}I", chunk, header)
    body, placed = bytearray(), []
    for offset in offsets:
        placed.append(NONE if offset == NONE else len(body))
        if offset != NONE:
            body += plain_entry(chunk, start + offset)
    start = header + 4 * len(placed)
    head = (
        struct.pack("<HHIBBHII", TYPE, header, start + len(body), number, 0, 0, len(placed), start) + chunk[20:header]
    )
    return head + struct.pack(f"<{len(placed)}I", *placed) + bytes(body)


def plain_package(chunk: bytes, header: int) -> bytes:
    out, totals = bytearray(chunk[:header]), {}
    for kind, inner, data in chunks(chunk, header, len(chunk)):
        if kind == SPEC:
            (totals[data[8]],) = struct.unpack_from("<I", data, 12)
        if kind in (STRINGS, SPEC, TYPE, LIBRARY):
            out += plain_type(data, inner, totals[data[8]]) if kind == TYPE else data
    struct.pack_into("<I", out, 4, len(out))
    return bytes(out)


def plain_table(data: bytes) -> bytes:
    _, header, size, _ = struct.unpack_from("<HHII", data)
    body, packages = bytearray(), 0
    for kind, inner, chunk in chunks(data, header, size):
        packages += kind == PACKAGE
        if kind != PACKAGE or packages == 1:
            body += plain_package(chunk, inner) if kind == PACKAGE else chunk
    return struct.pack("<HHII", TABLE, header, header + len(body), 1) + bytes(body)


def main(source: str, target: str) -> None:
    with zipfile.ZipFile(source) as jar, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as apk:
        apk.writestr("AndroidManifest.xml", jar.read("AndroidManifest.xml"))
        apk.writestr("resources.arsc", plain_table(jar.read("resources.arsc")))


if __name__ == "__main__":
    main(*sys.argv[1:])
