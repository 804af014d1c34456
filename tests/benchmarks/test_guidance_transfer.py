# SPDX-License-Identifier: Apache-2.0
"""Seconds that SmolLM2-135M-Instruct waits for guidance which streams while its forward pass runs, by the speed of the network.

Files come through a loop that sleeps as long as a network of that speed takes for each piece. Needs a machine left alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.support.federation import adapter_hash, ordered

from bespoke import Federation, Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import generate_key, signed_document
from bespoke.rules.federation import packed
from bespoke.rules.round_documents import Measurement, ReceivedFile, RoundDocument

COLUMNS, LENGTH, ROWS = 4, 128, 4
MEGABITS = (1, 3, 10, 30, 100)
PIECE = 16_384  # bytes that arrive at once
PRIVATE, PUBLIC = generate_key()
EXAMPLES = [{"prompt": f"Where does number {n} live?", "completion": "By the river. " * 12} for n in range(ROWS)]
HEADER = (
    "Mbit/s",
    "blocks with guidance",
    "MB",
    "seconds of transfer alone",
    "seconds of the call",
    "seconds waited",
    "one after the other, times the call",
)


class Transfer:
    """A bundle's guidance, a device, and what it takes to measure with guidance of its first blocks."""

    def __init__(self, gguf: Path, place: Path) -> None:
        self.place = place
        self.bundle = Personalizer(
            gguf,
            {"zgr": {"guidance_columns": COLUMNS}},
            "executorch",
            lora=Lora(train="B"),
            training=Training(sequence_lengths=(LENGTH,), batch_size=ROWS, steps=10),
            data=None,
            rehearsal=False,
            federation=Federation(task="transfer", server_key=PUBLIC.hex(), noise=0.0, budget=None),
        ).build(place / "transfer.bundle")
        with read_bundle(self.bundle) as opened:
            adapter = {name: piece for name, piece in opened.initial_adapter().items() if name.endswith("lora_B")}
        self.adapter = adapter_hash(adapter)
        random = np.random.default_rng(0)
        self.blocks: list[list[tuple[str, bytes]]] = []
        for group in sorted({name.split(".", 1)[0] for name in adapter}):
            pieces = [name for name in ordered(adapter) if name.startswith(f"{group}.")]
            columns = {name: random.standard_normal((COLUMNS, *adapter[name].shape)) for name in pieces}
            codes, scales = packed(columns)
            named = ((f"guidance.{group}.scales", scales), (f"guidance.{group}.codes", codes))
            self.blocks.append([(name, array.tobytes()) for name, array in named])

    def measure(self, blocks: int, megabits: float | None) -> float:
        """Seconds of a measurement with guidance of so many blocks. `megabits` None: the files are there before."""
        files = [file for block in self.blocks[:blocks] for file in block]
        records = tuple(
            ReceivedFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files
        )
        asked = Measurement(
            round=1, first=0, count=1, coefficient=0.7, guidance_coefficient=0.1, files=records, adapter=self.adapter
        )
        document = RoundDocument(
            task="transfer", taken=(), snapshot=None, rounds=(), measure=asked, wait_seconds=0.0, done=False
        )
        shutil.rmtree(self.place / "state", ignore_errors=True)
        with PersonalModel.open(self.bundle, self.place / "state") as model:
            for number, example in enumerate(EXAMPLES):
                model.examples.add(example, id=str(number), use="train")
            model.federation.join()
            payload = json.dumps(document.model_dump(mode="json"))
            model.federation.respond(model.federation.request(), signed_document(payload, PRIVATE))
            contents = {record.sha256: data for record, (_, data) in zip(records, files, strict=True)}
            fetching = threading.Thread(target=fetch, args=(model, contents, megabits))
            if megabits is None:
                fetch(model, contents, None)
            else:
                fetching.start()
            began = time.monotonic()
            report = model.federation.take_part()
            seconds = time.monotonic() - began
            if megabits is not None:
                fetching.join()
        assert report.measured == 1
        return seconds


def fetch(model: PersonalModel, contents: dict[str, bytes], megabits: float | None) -> None:
    """Brings the files in the order in which they are asked for, no faster than a network of this speed."""
    began, brought = time.monotonic(), 0
    while (request := model.federation.request()).step == "fetch":
        size = request.size if megabits is None else min(PIECE, request.size)
        piece = contents[request.sha256][request.offset : request.offset + size]
        brought += len(piece)
        if megabits is not None:
            time.sleep(max(0.0, began + brought * 8 / (megabits * 1e6) - time.monotonic()))
        model.federation.respond(request, piece)


@pytest.mark.benchmark
def test_guidance_streams_while_the_forward_pass_runs(smollm2: Path, tmp_path: Path) -> None:
    transfer = Transfer(smollm2, tmp_path)
    count = len(transfer.blocks)
    size = [sum(len(data) for _, data in block) for block in transfer.blocks]
    transfer.measure(count, None)  # the first process writes what it remembers
    alone = statistics.median(transfer.measure(count, None) for _ in range(3))
    rows: list[list[Cell]] = [["all there", count, sum(size) / 1e6, 0.0, alone, 0.0, None]]
    for megabits in MEGABITS:
        fits = int(alone * megabits * 1e6 / 8 / size[0])  # blocks whose transfer takes no longer than the call
        for blocks in sorted({count, min(count, max(1, fits))}, reverse=True):
            seconds = statistics.median(transfer.measure(blocks, megabits) for _ in range(3))
            bytes_ = sum(size[:blocks])
            network = bytes_ * 8 / (megabits * 1e6)
            rows.append(
                [
                    megabits,
                    blocks,
                    bytes_ / 1e6,
                    network,
                    seconds,
                    max(0.0, seconds - alone),
                    (alone + network) / seconds,
                ]
            )
            print(rows[-1], flush=True)
    write_table(
        "guidance_transfer",
        HEADER,
        rows,
        f"SmolLM2-135M-Instruct, LoRA-FA of rank 8, {COLUMNS} columns in INT4, {ROWS} rows of up to {LENGTH} tokens. One "
        "direction: two forward passes in a process of its own. Medians of three. Each speed has a row with guidance of all "
        "blocks, and one with as many blocks as come within the seconds of the call that has all files. One after the other: "
        "the transfer, then the call.",
    )
