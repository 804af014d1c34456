# SPDX-License-Identifier: Apache-2.0
"""Detection of tokenizers in other formats than tokenizer.json. transformers converts each of them to one."""

from __future__ import annotations

from pathlib import Path

from bespoke.errors import ModelError
from bespoke.remedies import setting

__all__ = ["check_no_other_tokenizer"]

_FORMS = {
    "tokenizer.model": "SentencePiece or tiktoken",
    "spiece.model": "SentencePiece",
    "sentencepiece.bpe.model": "SentencePiece",
    "tekken.json": "Mistral's tekken",
    "vocab.json": "byte-pair encoding, with merges.txt",
    "vocab.txt": "WordPiece",
}


def check_no_other_tokenizer(folder: Path) -> None:
    """Raises ModelError if `folder`, which has no tokenizer.json, has a tokenizer in another format.

    Without this error the model would be built for token ids only.
    """
    for name, form in _FORMS.items():
        if (folder / name).is_file():
            place = str(folder)
            raise ModelError(
                f"tokenizer of {folder}",
                got=f"{name} ({form}) and no tokenizer.json",
                expected="tokenizer.json",
                next_step=f"Write it with transformers: AutoTokenizer.from_pretrained({place!r}).save_pretrained({place!r}); "
                "or build with " + setting("text", False) + ", for token ids only",
            )
