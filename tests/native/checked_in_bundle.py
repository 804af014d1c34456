# SPDX-License-Identifier: Apache-2.0
"""Makes the bundle with which `ctest` runs the checks of the C API without Python: a random Llama of one layer, signed, one zip.

python -m tests.native.checked_in_bundle
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from bespoke import Lora, Personalizer, Training
from bespoke.bundle.signature import generate_key, sign_bundle
from bespoke.bundle.stored_zip import write_zip
from tests.native.conftest import SOURCE
from tests.support.models import tiny_model

FOLDER = SOURCE / "tests" / "data"
BUNDLE, KNOWN_BY = FOLDER / "tiny.zip", FOLDER / "tiny.cmake"


def write() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        bundle = Path(temporary) / "bundle"
        sizes = {"num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
        training = Training(
            sequence_lengths=(16,), batch_size=2, steps=13, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
        )
        settings = {"context": 40, "lora": Lora(rank=2, alpha=8.0), "training": training, "data": None}
        model = tiny_model("llama", Path(temporary) / "model", **sizes)
        Personalizer(model, {"mesp": {}}, "executorch", **settings).build(bundle)  # type: ignore[arg-type]
        private, public = generate_key()
        sign_bundle(bundle, private)
        files = [path for path in sorted(bundle.rglob("*")) if path.is_file()]
        FOLDER.mkdir(exist_ok=True)
        write_zip(BUNDLE, [(str(path.relative_to(bundle)), path) for path in files])
        pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
        KNOWN_BY.write_text(
            "# Written by tests/native/checked_in_bundle.py: what tiny.zip can be known by.\n"
            f"set(BESPOKE_TINY_PIN {pin})\nset(BESPOKE_TINY_KEY {public.hex()})\n"
        )


if __name__ == "__main__":
    write()
