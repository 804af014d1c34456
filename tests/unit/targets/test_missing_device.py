# SPDX-License-Identifier: Apache-2.0
"""A whole bundle on a device that cannot run it: the error names what the device lacks, and does not ask for another bundle."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.core import finding
from bespoke.errors import MissingDependency, Unavailable
from tests.support.models import tiny_model

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch.qnn import compile as compiling
from bespoke_plugins.targets.executorch.qnn import lowering
from bespoke_plugins.targets.executorch.qnn.binary import Binary
from bespoke_plugins.targets.executorch.qnn.region import Region

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]


MAGIC, NONSENSE = 0x5678ABCD, 4096


def binary(region: Region, soc: str, name: str) -> Binary:
    """ExecuTorch's header and settings around nonsense: without the vendor's libraries nobody gets as far as reading it."""
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    options = generate_htp_compiler_spec(use_fp16=True)
    specs = generate_qnn_executorch_compiler_spec(soc_model=QcomChipset[soc], backend_options=options)
    return Binary(
        struct.pack("<IQQ", MAGIC, 1, NONSENSE) + bytes(NONSENSE),
        tuple((spec.key, bytes(spec.value)) for spec in specs),
        tuple(range(len(region.inputs))),
        tuple(range(len(region.outputs))),
    )


def test_without_an_npu_its_programs_are_refused_for_what_the_device_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "check_compiler", lambda soc: None)
    monkeypatch.setattr(lowering, "compile_region", binary)
    (tmp_path / "sdk").mkdir()
    monkeypatch.setenv("QNN_SDK_ROOT", str(tmp_path / "sdk"))  # ExecuTorch would download one
    model = tiny_model("llama", tmp_path / "model", num_hidden_layers=1)
    training = Training(sequence_lengths=(16,), batch_size=1, steps=1)
    target: Any = {"executorch": {"delegate": "qnn", "soc": "SM8650"}}
    bundle = Personalizer(
        model, {"mezo": {"epsilon": 1e-2}}, target, context=32, lora=Lora(rank=2), training=training, data=None
    ).build(tmp_path / "bundle")
    example = {"tokens": [40, 41, 42], "mask": [0, 1, 1]}
    with (
        PersonalModel.open(bundle, tmp_path / "state", engine="executorch") as opened,
        pytest.raises((Unavailable, MissingDependency)) as caught,
    ):
        opened.evaluate([example])
    assert "Qualcomm's NPU" in caught.value.got
    assert "libQnn" in caught.value.got or "libqnn" in caught.value.got
    assert '"soc":"SM8650"' in caught.value.expected  # what it was built for
    assert "uild" not in caught.value.next_step
