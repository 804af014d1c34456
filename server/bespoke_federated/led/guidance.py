# SPDX-License-Identifier: Apache-2.0
"""Guidance between a cloud and its edges: how a round's directions are told, which bytes travel, and what an edge checks of them.

An order names the files of a round by sha256. An edge says which of them it lacks, and the next order brings those: of one round,
and no more than a bound. Each is checked against its sha256 and the plan of the edge's own bundle before anything changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bespoke.rules.round_documents import MAX_DIRECTIONS, ReceivedFile
from bespoke_federated.adapter import Received
from bespoke_federated.directions import Directions
from bespoke_federated.guidance import Opening, faults_of_file, faults_of_names, kept_files
from bespoke_federated.led.documents import GuidedBy, Layout, Order, SentFile
from bespoke_federated.problems import RequestError, problem
from bespoke_federated.whole_file import FILES

__all__ = ["came_with", "check_kept", "files_for", "guided_by", "opening_of_layout"]

MOST_FILE_BYTES = 2**24  # of an order, unless one file alone has more

_refused = problem(409, "the cloud's order: guidance")


def guided_by(measured: Directions, files: tuple[ReceivedFile, ...]) -> GuidedBy | None:
    """What an edge is told of a round's guidance. None: there is none."""
    if not files:
        return None
    return GuidedBy(
        coefficient=measured.coefficient,
        guidance_coefficient=measured.guidance_coefficient,
        watched=measured.watched,
        files=files,
    )


def opening_of_layout(layout: Layout) -> Opening:
    """How a round opens at an edge that was told of it."""
    if (told := layout.guidance) is None:
        return Opening(Directions(layout.groups, layout.each))
    measured = Directions(layout.groups, layout.each, told.coefficient, told.guidance_coefficient, told.watched)
    return Opening(measured, told.files)


def files_for(state: Path, rounds: Iterable[Sequence[ReceivedFile]], lacking: Collection[str]) -> tuple[SentFile, ...]:
    """What an order brings to an edge that lacks these files: those of the first round that needs some, as many as fit."""
    for files in rounds:
        wanted = {file.sha256: file.size for file in files if file.sha256 in lacking}
        if wanted:
            return tuple(_sent(state, wanted))
    return ()


def _sent(state: Path, wanted: Mapping[str, int]) -> Iterator[SentFile]:
    total = 0
    for sha256, size in wanted.items():
        total += size
        if total > MOST_FILE_BYTES and total > size:
            return
        yield SentFile(sha256=sha256, data=base64.b64encode((state / FILES / sha256).read_bytes()).decode())


def came_with(order: Order, expected: Mapping[str, Received]) -> list[bytes]:
    """The files that an order brings. Raises RequestError where one of them, or what the order says of them, does not fit."""
    layouts = [*order.ended, *([order.opened] if order.opened else [])]
    named: dict[str, list[ReceivedFile]] = {}
    for layout in layouts:
        measured, files, _ = opening_of_layout(layout)
        if measured.watched >= measured.groups or measured.groups * measured.each > MAX_DIRECTIONS:
            raise _refused("directions that no round has", f"at most {MAX_DIRECTIONS}", "Ask who runs the cloud")
        for fault in faults_of_names([file.name for file in files], expected) if files else ():
            raise _misfit(fault)
        for file in files:
            shape, dtype = expected[file.name]
            if file.size != math.prod(shape) * np.dtype(dtype).itemsize:
                raise _misfit(f"{file.name} has {file.size} bytes")
            named.setdefault(file.sha256, []).append(file)
    return [_checked(sent, named.get(sent.sha256, []), expected) for sent in order.files]


def check_kept(state: Path, files: Sequence[ReceivedFile], expected: Mapping[str, Received]) -> None:
    """Raises RequestError where files of a new round, all of which are here, do not fit: they may be of something else."""
    for file in files:
        if (state / FILES / file.sha256).stat().st_size != file.size:
            raise _misfit(f"{file.name} has another size")
    for name, array in kept_files(state, files, expected).items():
        for fault in faults_of_file(name, array, expected):
            raise _misfit(fault)


def _checked(sent: SentFile, files: Sequence[ReceivedFile], expected: Mapping[str, Received]) -> bytes:
    try:
        data = base64.b64decode(sent.data, validate=True)
    except (binascii.Error, ValueError):
        raise _misfit(f"{sent.sha256[:8]} is no base64") from None
    if hashlib.sha256(data).hexdigest() != sent.sha256:
        raise _misfit(f"{sent.sha256[:8]} has another sha256")
    if not files:
        raise _misfit(f"{sent.sha256[:8]} is of no round in the order")
    for file in files:
        if file.size != len(data):
            raise _misfit(f"{file.name} has {len(data)} bytes")
        shape, dtype = expected[file.name]
        for fault in faults_of_file(file.name, np.frombuffer(data, dtype).reshape(shape), expected):
            raise _misfit(fault)
    return data


def _misfit(got: str) -> RequestError:
    return _refused(got, "files that fit the plan of this edge's bundle", "Lead it with the bundle that it has")
