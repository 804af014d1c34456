# SPDX-License-Identifier: Apache-2.0
"""A trained tiny model of each family: half a million parameters that know some English, made here on real text in under a minute.

A random model has nothing to forget, so what training does to one says nothing about a gate. These have learned WikiText-2 and
bank customers' questions for a few hundred steps: far from good, but far from random too.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.support.models import tiny_config

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text")
BEGINS = ("llama", "gemma3_text")  # whose tokenizers put a token before a text
SPECIAL = ("<s>", "</s>")
VOCABULARY, ROW, BATCH, STEPS = 768, 96, 16, 400
PRETRAINING_CHARACTERS = 3_000_000
SIZES: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\\n' + message['content'] + '</s>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}"
)
ANSWER_CHARACTERS = 160


def wikitext(data_folder: Path, characters: int | None = PRETRAINING_CHARACTERS) -> list[str]:
    """Paragraphs of WikiText-2, with spaces as people write them; None: all of them."""
    wiki = (data_folder / "text" / "wikitext-2" / "train.txt").read_text(encoding="utf-8")[:characters]
    for mark, plain in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), (" ,", ","), (" .", "."), (" 's", "'s")):
        wiki = wiki.replace(mark, plain)
    return [line.strip() for line in wiki.splitlines() if len(line) > 100]


def pretraining_texts(data_folder: Path) -> list[str]:
    """Paragraphs of WikiText-2 and questions of banking77."""
    with (data_folder / "classification" / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        questions = [row["text"] for row in csv.DictReader(file)]
    return wikitext(data_folder) + questions


def trained_model(
    family: str,
    folder: Path,
    data_folder: Path,
    *,
    texts: list[str] | None = None,
    steps: int = STEPS,
    ends: bool = False,
) -> Path:
    """Writes a Hugging Face folder with tokenizer, and returns it. `texts`: by default `pretraining_texts`. `ends`: each text ends
    with the end token, so that the model knows it before it learns to answer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import AutoModelForCausalLM

    texts = pretraining_texts(data_folder) if texts is None else texts
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts[::4], trainer)
    begin, end = (tokenizer.token_to_id(name) for name in SPECIAL)
    if family in BEGINS:
        first = (SPECIAL[0], begin)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{SPECIAL[0]} $A", special_tokens=[first])
    sizes = {**SIZES, "vocab_size": tokenizer.get_vocab_size(), "bos_token_id": begin, "eos_token_id": end}
    if family == "gemma3_text":
        sizes |= {"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 192, "sliding_window": 32}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(family, **sizes))
    order = np.random.Generator(np.random.Philox(0)).permutation(len(texts))
    last = (end,) if ends else ()
    encoded = ((begin, *tokenizer.encode(texts[n], add_special_tokens=False).ids, *last) for n in order)
    stream = torch.tensor([i for ids in encoded for i in ids])
    rows = stream[: len(stream) // (ROW + 1) * (ROW + 1)].view(-1, ROW + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min(1, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
        batch = rows[torch.arange(step * BATCH, (step + 1) * BATCH) % len(rows)]
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"{family}: step {step + 1}, loss {float(loss.detach()):.2f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    marks = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "add_bos_token": family in BEGINS}
    settings = {**marks, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "LICENSE").write_text("Made for tests; no rights reserved.\n", encoding="utf-8")
    return folder


def trained_chat_model(folder: Path, data_folder: Path) -> Path:
    """Writes one that answers in turns: the first sentence of a paragraph with the beginning of the next ones."""
    parted = [paragraph.split(". ", 1) for paragraph in wikitext(data_folder)]
    texts = [
        f"user\n{parts[0]}.</s>\n<s>assistant\n{_whole_words(parts[1])}</s>\n" for parts in parted if len(parts) == 2
    ]
    trained_model("qwen2", folder, data_folder, texts=texts)
    file = folder / "tokenizer_config.json"
    settings = {**json.loads(file.read_text(encoding="utf-8")), "chat_template": CHAT_TEMPLATE}
    file.write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _whole_words(text: str) -> str:
    """The beginning of a text, up to the end of its first sentence or of a word."""
    sentence = text.split(". ", 1)[0]
    return f"{sentence}." if len(sentence) < ANSWER_CHARACTERS else text[:ANSWER_CHARACTERS].rsplit(" ", 1)[0]
