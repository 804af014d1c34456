# SPDX-License-Identifier: Apache-2.0
"""Answers by `prefill` and `decode`: the prompt goes into the KV cache in pieces, then one token at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from bespoke.errors import GenerationError
from bespoke.rules.sampling import check_sampling, choose_token
from bespoke.runtime.interpreter import Bindings
from bespoke.runtime.machine import Machine


def generate(
    machine: Machine, prompt: Sequence[int], adapter: Mapping[str, torch.Tensor], stop_ids: frozenset[int], *,
    max_tokens: int, temperature: float, top_p: float, top_k: int | None, seed: int,
) -> Iterator[int]:  # fmt: skip
    """Yields token ids until a stop token, `max_tokens`, or the end of the context (bundle.context_length rows)."""
    check_sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    context = machine.bundle.manifest.context_length
    if not 0 < len(prompt) < context:
        raise GenerationError(
            "prompt",
            got=f"{len(prompt)} tokens",
            expected=f"1 to {context - 1} tokens, so that an answer fits into the context of {context}",
            next_step="Shorten the prompt, or build the bundle with longer sequence_lengths",
        )
    try:
        _prefill(machine, prompt[:-1], adapter)
        token = prompt[-1]
        for position in range(len(prompt) - 1, min(context, len(prompt) - 1 + max_tokens)):
            logits = _decode(machine, token, position, adapter)
            token = choose_token(
                logits.numpy().reshape(-1), temperature=temperature, top_p=top_p, top_k=top_k, seed=seed,
                position=position + 1,
            )  # fmt: skip
            if token in stop_ids:
                return
            yield token
    finally:
        machine.buffers.end_session()


def _prefill(machine: Machine, tokens: Sequence[int], adapter: Mapping[str, torch.Tensor]) -> None:
    """Pieces as long as a plan allows; the last one padded where the cache has room for it, else token by token."""
    position, lengths = 0, machine.sequence_lengths
    context = machine.bundle.manifest.context_length
    while position < len(tokens):
        rest = len(tokens) - position
        length = next((size for size in lengths if size >= rest), lengths[-1])
        if position + length > context:
            _decode(machine, tokens[position], position, adapter)
            position += 1
            continue
        piece = list(tokens[position : position + length])
        padded = torch.tensor([piece + [0] * (length - len(piece))])
        bindings = Bindings({f"prompt_{length}": padded}, {"position": position}, adapter=adapter)
        machine.interpreters[length].run("prefill", bindings)
        position += len(piece)


def _decode(machine: Machine, token: int, position: int, adapter: Mapping[str, torch.Tensor]) -> torch.Tensor:
    bindings = Bindings({"prompt_1": torch.tensor([[token]])}, {"position": position}, adapter=adapter)
    return machine.interpreters[machine.sequence_lengths[0]].run("decode", bindings).metrics["logits"]
