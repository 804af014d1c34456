# SPDX-License-Identifier: Apache-2.0
"""Generates answers by `prefill` and `decode`: the prompt fills the KV cache in chunks, then each step adds one token.

A plan with section `decode_rows` takes several tokens in a step, where the answer repeats what was said before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from bespoke.bundle.reader import Bundle
from bespoke.errors import GenerationError
from bespoke.reference.machine import AnsweringMachine, adapter_tensors, threads_of
from bespoke.reference.torch_settings import computing, each_computed
from bespoke.rules.drafts import Drafts
from bespoke.rules.sampling import check_sampling, choose_token

Adapter = Mapping[str, np.ndarray]


def generate(
    bundle: Bundle,
    prompt: Sequence[int],
    adapter: Adapter | None = None,
    *,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[int]:
    """Yields the answer to a prompt, both as token ids. The default adapter is the bundle's initial one: it changes nothing."""
    threads = threads_of(bundle)
    with computing(threads):
        machine = AnsweringMachine(bundle)
        tensors = adapter_tensors(bundle.initial_adapter() if adapter is None else adapter)
    tokens = generate_on(
        machine,
        list(prompt),
        tensors,
        frozenset(bundle.manifest.text.stop_ids),
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
    )
    return each_computed(tokens, threads)


def generate_on(
    machine: AnsweringMachine,
    prompt: Sequence[int],
    adapter: Mapping[str, torch.Tensor],
    stop_ids: frozenset[int],
    *,
    max_tokens: int,
    temperature: float,
    top_p: float,
    top_k: int | None,
    seed: int,
) -> Iterator[int]:
    """Yields token ids until a stop token, `max_tokens`, or the end of the context (bundle.context_length rows)."""
    check_sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    context = machine.bundle.manifest.context_length
    if not 0 < len(prompt) < context:
        raise GenerationError(
            "prompt",
            got=f"{len(prompt)} tokens",
            expected=f"1 to {context - 1} tokens, so that an answer fits into the context of {context}",
            next_step="Shorten the prompt, or build the bundle with a larger context",
        )

    try:
        machine.prefill(prompt[:-1], 0, adapter)
        seen, drafts = list(prompt), Drafts()
        draft: list[int] = []
        row = 0
        for position in range(len(prompt) - 1, min(context, len(prompt) - 1 + max_tokens)):
            if row < len(draft) and seen[-1] == draft[row]:
                row += 1  # computed with the token before it
            else:
                row = 0
                has_room = machine.rows > 1 and position + machine.rows <= context
                draft = drafts.next(seen, machine.rows - 1) if has_room else []
                if draft:
                    logits = machine.decode_rows([seen[-1], *draft], position, adapter)
                else:
                    logits = machine.decode(seen[-1], position, adapter)
            token = choose_token(
                logits.numpy()[:, row],
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                seed=seed,
                position=position + 1,
            )
            if token in stop_ids:
                return
            seen.append(token)
            yield token
    finally:
        machine.end_session()
