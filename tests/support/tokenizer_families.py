# SPDX-License-Identifier: Apache-2.0
"""Each tokenizer in its two forms: the tokenizer.bin that the core maps, and the package's own object as oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tokenizers

from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from tests.support.checks import record_check
from tests.support.trained_tokenizers import LACKING, TRAINED, config_of, tokenizer_json

REAL = {"qwen2.5": Path("tokenizers", "qwen2.5"), "stories260K": Path("models", "stories260K")}
FAMILIES = (*REAL, *TRAINED)
RECORDED = ("qwen2.5", "stories260K", "gpt2", "llama3")
FEW = (*RECORDED, "gemma", "smollm_lacking", "llama_lacking")


@dataclass
class Family:
    name: str
    path: Path  # path of tokenizer.bin
    data: bytes  # tokenizer.json
    oracle: tokenizers.Tokenizer
    bos: int | None
    eos: int | None
    special_tokens: dict[str, str]
    added: dict[int, str] = field(default_factory=dict)

    @property
    def unknown(self) -> int | None:
        """The token of the characters that have none."""
        name = json.loads(self.data)["model"]["unk_token"] if self.name in LACKING else None
        return None if name is None else int(self.oracle.token_to_id(name))

    def without_stripped(self, text: str) -> str:
        """`text` without the space that decoding takes from its beginning."""
        return text.removeprefix(" ") if "Strip" in str(self.oracle.decoder) else text

    def record(self, name: str, counts: dict[str, object], seed: int | None = None) -> None:
        """For the page of checks, which has rows for some families."""
        if self.name in RECORDED:
            record_check(f"{name}, {self.name}", counts, seed)

    def tokens(self, text: str, template: bool = False) -> list[int]:
        return self.all_tokens([text], template)[0]

    def all_tokens(self, texts: list[str], template: bool = False) -> list[list[int]]:
        self.oracle.encode_special_tokens = not template
        return [one.ids for one in self.oracle.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.fixture(scope="session")
def family_of(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[str], Family]:
    """By name, made when first asked for."""
    made: dict[str, Family] = {}
    folder = tmp_path_factory.mktemp("tokenizers")

    def get(name: str) -> Family:
        if name not in made:
            if name in REAL:
                own = Tokenizer.open(request.getfixturevalue("data_folder") / REAL[name])
            else:
                own = Tokenizer.from_bytes(tokenizer_json(name), json.dumps(config_of(name)).encode(), name)
            data = own.files()["tokenizer.json"]
            oracle = tokenizers.Tokenizer.from_buffer(data)
            path = folder / f"{name}.bin"
            path.write_bytes(write_tokenizer_file(own, name))
            added = {token_id: token.content for token_id, token in oracle.get_added_tokens_decoder().items()}
            made[name] = Family(name, path, data, oracle, own.bos_id, own.eos_id, own.special_tokens, added)
        return made[name]

    return get
