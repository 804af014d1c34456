# SPDX-License-Identifier: Apache-2.0
"""A small Llama of our own, made here in one or two minutes: no download, no licence but ours.

A byte-level BPE tokenizer and a decoder of about a million parameters are trained on `everyday_text` until the loss has
flattened (under 2% over the last tenth of the steps; `training.json` in the folder holds the curve), then written as a
complete Hugging Face folder. The result is cached under a hash of these sources, the settings and the library versions, so
that the demo and the tests share one model. It is made in a process of its own: the caller keeps its threads, its random
state and its memory.

    python -m sample_apps.desktop.pretrain --cache .cache/desktop
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_apps.desktop.everyday_text import conversations, documents

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
SOURCES = ("everyday_text.py", "everyday_scenes.py", "everyday_words.py", "pretrain.py")
DEFAULT_CACHE = REPOSITORY / ".cache" / "desktop"

BEGIN, END, TURN, TURN_END = "<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
# Qwen2's way to cut text before merging: one of the few that the device's tokenizer reads.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """Settings; every one is part of the cache key."""

    vocabulary: int = 1024
    hidden: int = 128
    intermediate: int = 384
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    context: int = 512
    row: int = 192  # tokens a training row
    batch: int = 8
    steps: int = 400
    warmup: int = 20
    learning_rate: float = 8e-3
    weight_decay: float = 0.05
    chat_share: float = 0.35
    tokenizer_documents: int = 4000
    validation_rows: int = 48
    seed: int = 0


def texts(settings: Pretraining, seed: int) -> Iterator[str]:
    """Documents and rendered chats in the share asked for, special tokens included, without end."""
    plain, chats, owed = documents(seed), conversations(seed), 0.0
    while True:
        owed += settings.chat_share
        if owed >= 1:
            owed -= 1
            turns = "".join(f"{TURN}{m['role']}\n{m['content']}{TURN_END}\n" for m in next(chats))
            yield f"{BEGIN}{turns}"
        else:
            yield f"{BEGIN}{next(plain)}{END}"


def make_tokenizer(settings: Pretraining) -> Tokenizer:
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True, normalized=False) for name in (BEGIN, END, TURN, TURN_END)]
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sample = itertools.islice(documents(settings.seed), settings.tokenizer_documents)
    chats = itertools.islice(conversations(settings.seed), settings.tokenizer_documents // 4)
    tokenizer.train_from_iterator(itertools.chain(sample, (m["content"] for chat in chats for m in chat)), trainer)
    begin = tokenizer.token_to_id(BEGIN)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A $B", special_tokens=[(BEGIN, begin)]
    )
    return tokenizer


def rows(settings: Pretraining, tokenizer: Tokenizer, seed: int) -> Iterator[list[int]]:
    """Rows of `row + 1` tokens; each begins with a document, as a prompt does, and holds as many as fit."""
    row: list[int] = []
    for text in texts(settings, seed):
        row += tokenizer.encode(text, add_special_tokens=False).ids
        if len(row) > settings.row:
            yield row[: settings.row + 1]
            row = []


def muon_step(matrix: torch.nn.Parameter, momentum: torch.Tensor, learning_rate: float, weight_decay: float) -> None:
    """What torch.optim.Muon does with adjust_lr_fn="match_rms_adamw", in float32: it computes in bfloat16, which takes ten times as
    long on most processors (0.79 s against 0.06 s for this model's matrices)."""
    import torch

    with torch.no_grad():
        assert matrix.grad is not None
        momentum.lerp_(matrix.grad, 0.05)
        update = matrix.grad.lerp(momentum, 0.95)
        tall = update.shape[0] > update.shape[1]
        x = update.T if tall else update
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):  # Newton-Schulz: towards the orthogonal matrix nearest to x
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        matrix.mul_(1 - learning_rate * weight_decay)
        matrix.add_(x.T if tall else x, alpha=-learning_rate * 0.2 * max(matrix.shape) ** 0.5)


def pretrain(settings: Pretraining, folder: Path) -> dict[str, Any]:
    """Write the model to `folder` and return its training curve (losses in nats a token)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    started = time.monotonic()
    torch.manual_seed(settings.seed)
    torch.use_deterministic_algorithms(True)
    tokenizer = make_tokenizer(settings)
    begin, end, turn_end = (tokenizer.token_to_id(name) for name in (BEGIN, END, TURN_END))
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads,
        head_dim=settings.hidden // settings.heads,
        max_position_embeddings=settings.context,
        tie_word_embeddings=True,
        bos_token_id=begin,
        eos_token_id=[end, turn_end],
        pad_token_id=end,
    )
    model = LlamaForCausalLM(config)
    stream = rows(settings, tokenizer, seed=settings.seed + 1)
    held_out = rows(settings, tokenizer, seed=settings.seed + 2)

    def batch(source: Iterator[list[int]], size: int) -> torch.Tensor:
        return torch.tensor(list(itertools.islice(source, size)))  # (B, row + 1)

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits  # (B, row, V)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    validation = batch(held_out, settings.validation_rows)

    def validation_loss() -> float:
        with torch.no_grad():
            return float(loss_of(validation))

    # Muon for the matrices, AdamW for embedding and norms: 0.74 against 1.03 nats after 400 steps of either.
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.dim() > 1 and p is not embedding]
    others = [p for p in model.parameters() if p.dim() == 1 or p is embedding]
    adamw = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    momenta = [torch.zeros_like(matrix) for matrix in matrices]

    def learning_rate(step: int) -> float:
        """Linear warm-up, then a cosine down to zero."""
        if step < settings.warmup:
            return settings.learning_rate * (step + 1) / settings.warmup
        done = (step - settings.warmup) / (settings.steps - settings.warmup)
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))

    curve: dict[str, float] = {}
    tenth = settings.steps // 10
    for step in range(settings.steps):
        if step % tenth == 0:
            curve[str(step)] = validation_loss()
            print(f"step {step} of {settings.steps}: loss {curve[str(step)]:.3f}", file=sys.stderr, flush=True)
        loss = loss_of(batch(stream, settings.batch))
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.param_groups[0]["lr"] = learning_rate(step)
        adamw.step()
        for matrix, momentum in zip(matrices, momenta, strict=True):
            muon_step(matrix, momentum, learning_rate(step), settings.weight_decay)
    curve[str(settings.steps)] = validation_loss()

    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    before, after = curve[str(settings.steps - tenth)], curve[str(settings.steps)]
    report = {
        "validation_loss": curve,
        "improvement_over_last_tenth": 1 - after / before,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": settings.steps * settings.batch * settings.row,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(time.process_time(), 1),
    }
    _write_texts(folder, settings, report)
    return report


def _write_texts(folder: Path, settings: Pretraining, report: dict[str, Any]) -> None:
    special = {"bos_token": BEGIN, "eos_token": END, "pad_token": END}
    tokenizer_config = {
        **special,
        "additional_special_tokens": [TURN, TURN_END],
        "add_bos_token": True,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": settings.context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    written = {"tokenizer_config": tokenizer_config, "special_tokens_map": special, "training": report}
    for name, content in written.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(README.format(**report), encoding="utf-8")
    shutil.copyfile(REPOSITORY / "LICENSE", folder / "LICENSE")


README = """---
license: apache-2.0
language: en
pipeline_tag: text-generation
---
# Everyday text, {parameters} parameters

A Llama pretrained by the desktop sample of bespoke on {tokens} tokens of generated everyday English
(`sample_apps/desktop/everyday_text.py`). It knows short stories and small talk, and nothing else.
"""


def cache_key(settings: Pretraining) -> str:
    """Changes with the sources, the settings and the libraries that decide the numbers."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(settings), sort_keys=True).encode())
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    for package in ("torch", "transformers", "tokenizers"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()[:16]


def ensure_model(cache: Path = DEFAULT_CACHE) -> Path:
    """Folder of the pretrained model under `cache`, made first where it is missing (one or two minutes on two free cores).

    Safe to call from several processes at once: one makes it, the others wait.
    """
    key = cache_key(Pretraining())
    folder = cache / f"everyday-{key}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"everyday-{key}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            command = [sys.executable, "-m", "sample_apps.desktop.pretrain", "--into", str(folder.absolute())]
            # Threads that spin while they wait halve the speed as soon as the machine has other work.
            environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
            environment.pop("OMP_NUM_THREADS", None)  # tests take one thread each, but all wait for this
            subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    return folder


def _make(folder: Path) -> dict[str, Any]:
    """Makes the folder whole or not at all: it is written under another name, then renamed."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        report = pretrain(Pretraining(), partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretrain the small model of the desktop sample.")
    parser.add_argument("--cache", type=Path, default=DEFAULT_CACHE)
    parser.add_argument("--into", type=Path, help="train now and write this folder")
    arguments = parser.parse_args()
    if arguments.into is None:
        print(ensure_model(arguments.cache))
        return
    print("Pretraining a small Llama on generated everyday text (one or two minutes, then cached) ...", file=sys.stderr)
    report = _make(arguments.into)
    print(json.dumps(report, indent=2), file=sys.stderr)


if __name__ == "__main__":
    main()
