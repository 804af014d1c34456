# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of the base model to many prompts, at build: in batches, with a KV cache, in float32 from a bundle's int4 weights.

A batch holds prompts of nearly the same length. Its rows have no padding: linears read the tokens of all rows as one list, and
each row attends to its own keys. Which prompts are in a batch follows from the prompts alone, and a batch is computed on a single
thread. So the answers do not depend on how many threads share the batches.

Dimensions: N tokens of all rows together, B rows, S positions of the cache, D hidden, H query heads, K key-value heads, G = H / K,
d head width.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import torch

from bespoke.format.tensors import map_tensors
from bespoke.golden.make import one_thread
from bespoke.golden.weights import BundleWeights
from bespoke.model.spec import ModelSpec

__all__ = ["Question", "greedy_answers"]

CACHE_BYTES = 320_000_000  # most of a batch's KV cache, which bounds its rows
LEAST_ROWS = 8
LEAST_LEFT = 0.75  # share of a batch's rows: with fewer, the rows that have ended are dropped
PROGRESS_SECONDS = 0.5

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(block, q [N, H * d], k and v [N, K * d]) -> [N, H * d]."""


@dataclass(frozen=True)
class Question:
    """The tokens of a prompt, and the most tokens of its answer."""

    tokens: Sequence[int]
    most: int


def greedy_answers(
    model: ModelSpec,
    weights: Mapping[str, Path],
    questions: Sequence[Question],
    stop_ids: Collection[int],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[list[int]]:
    """The answer to each question, as tokens. An answer that ended by itself has its stop token at its end.

    weights: the files of a bundle's weights by group. They are decoded as a whole, 4 bytes a weight.
    """
    order = sorted(range(len(questions)), key=lambda number: (len(questions[number].tokens), number))
    size = _batch_size(model, questions)
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    answers: list[list[int]] = [[] for _ in questions]
    workers = max(1, min(torch.get_num_threads(), len(batches)))
    stopped = threading.Event()
    ended = _Count()

    with one_thread(), torch.no_grad(), ThreadPoolExecutor(workers) as pool:
        dense = DenseModel(model, weights)

        def answer(batch: Sequence[int]) -> None:
            with torch.no_grad():
                decoder = _Batch(dense, [questions[number] for number in batch], frozenset(stop_ids))
                for row, tokens in enumerate(decoder.run(stopped, ended)):
                    answers[batch[row]] = tokens

        running = {pool.submit(answer, batch) for batch in batches}
        try:
            while running:
                done, running = wait(running, PROGRESS_SECONDS)
                for each in done:
                    each.result()
                progress(ended.value, len(questions))
        finally:
            stopped.set()  # an error or Ctrl-C need not wait for the other batches
    return answers


def _batch_size(model: ModelSpec, questions: Sequence[Question]) -> int:
    """Rows of a batch: the more, the fewer times the weights are read."""
    config = model.config
    positions = max((len(question.tokens) + question.most for question in questions), default=1)
    row_bytes = positions * config.num_layers * 2 * config.num_kv_heads * config.head_dim * 4
    return max(LEAST_ROWS, CACHE_BYTES // row_bytes)


class _Count:
    """A number that several threads raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self, count: int) -> None:
        with self._lock:
            self.value += count


class DenseModel:
    """The base model without an adapter, its weights decoded to float32."""

    def __init__(self, model: ModelSpec, files: Mapping[str, Path]) -> None:
        self.spec = ModelSpec(model.config, model.lora.model_copy(update={"targets": ()}))
        weights = BundleWeights(files)
        self._blocks = [self._block(weights, group) for group in model.blocks]
        self._embedding = self._table(weights, "embedding")
        head = model.head_table_group
        self._head = self._embedding if head == "embedding" else self._table(weights, head)
        self._norm = torch.from_numpy(weights.small("head")["norm"].copy())
        self._rope = {name: torch.from_numpy(table.copy()) for name, table in map_tensors(files["rope"]).items()}

    def hidden(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """tokens and positions [N] -> what the last block gives for each token, [N, D]."""
        rope = {name: table[positions] for name, table in self._rope.items()}
        x = self.spec.embed(tokens, {"table": self._embedding})
        for block, weights in enumerate(self._blocks):
            cos, sin = self.spec.rope_names(block)
            inputs = self.spec.attention_inputs(x, weights, {}, {"cos": rope[cos], "sin": rope[sin]})
            x = self.spec.attention_output(x, attend(block, inputs["q"], inputs["k"], inputs["v"]), weights, {})
            x = self.spec.mlp(x, weights, {})
        return x

    def next_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """x [B, D] -> the likeliest next token of each row, [B]."""
        return (self.spec.final_norm(x, self._norm) @ self._head.t()).argmax(1)

    def _block(self, weights: BundleWeights, group: str) -> dict[str, torch.Tensor]:
        tensors = {name: torch.from_numpy(array.copy()) for name, array in weights.small(group).items()}
        for name, shape in self.spec.config.linear_shapes.items():
            tensors[name] = torch.empty(shape)
            weights.linear(group, name, [tensors[name]])
        return tensors

    def _table(self, weights: BundleWeights, group: str) -> torch.Tensor:
        config = self.spec.config
        table = torch.empty(config.vocab_size, config.hidden_size)
        weights.table(group, slice(0, config.vocab_size), [table])
        return table


class _Batch:
    """Questions that are answered together. Rows that have ended are dropped from time to time."""

    def __init__(self, dense: DenseModel, questions: Sequence[Question], stop_ids: frozenset[int]) -> None:
        self._dense = dense
        self._stop_ids = stop_ids
        self._most = [question.most for question in questions]
        self._answers: list[list[int]] = [[] for _ in questions]
        self._rows = list(range(len(questions)))  # questions that the rows of the cache belong to
        self._prompts = [torch.tensor(question.tokens) for question in questions]
        config = dense.spec.config
        positions = max(len(question.tokens) + question.most for question in questions)
        shape = (len(questions), config.num_kv_heads, positions, config.head_dim)
        self._keys = [torch.zeros(shape) for _ in range(config.num_layers)]
        self._values = [torch.zeros(shape) for _ in range(config.num_layers)]
        self._positions = torch.empty(0)  # of the newest token of each row

    def run(self, stopped: threading.Event, ended: _Count) -> list[list[int]]:
        """The answers. `ended` counts those that are complete."""
        tokens = self._take(self._prefill(), ended)
        while self._open and not stopped.is_set():
            going_on = torch.tensor([self._is_open(number) for number in self._rows])
            self._positions = self._positions + going_on  # an ended row stays within the RoPE tables
            x = self._dense.hidden(tokens, self._positions, self._attend)
            tokens = self._take(self._dense.next_tokens(x), ended)
        return self._answers

    @property
    def _open(self) -> int:
        return sum(map(self._is_open, self._rows))

    def _is_open(self, number: int) -> bool:
        answer = self._answers[number]
        return len(answer) < self._most[number] and not (answer and answer[-1] in self._stop_ids)

    def _take(self, tokens: torch.Tensor, ended: _Count) -> torch.Tensor:
        """Append the rows' next tokens to the answers that go on. Returns the tokens of the rows that are kept."""
        for number, token in zip(self._rows, tokens.tolist(), strict=True):
            if self._is_open(number):
                self._answers[number].append(token)
                ended.add(not self._is_open(number))
        kept = [row for row, number in enumerate(self._rows) if self._is_open(number)]
        if len(kept) > LEAST_LEFT * len(self._rows):
            return tokens
        self._rows = [self._rows[row] for row in kept]
        chosen = torch.tensor(kept, dtype=torch.int64)
        self._positions = self._positions[chosen]
        for caches in (self._keys, self._values):
            for block, cache in enumerate(caches):
                caches[block] = cache[chosen]
        return tokens[chosen]

    def _prefill(self) -> torch.Tensor:
        """Read the prompts into the cache. Returns the first token of each answer."""
        lengths = torch.tensor([len(prompt) for prompt in self._prompts])
        ends = lengths.cumsum(0)
        positions = torch.cat([torch.arange(len(prompt)) for prompt in self._prompts])
        start = torch.zeros((), dtype=torch.int64)
        slices = [slice(end - length, end) for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]
        spec = self._dense.spec

        def attend(block: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            window = torch.tensor(spec.window(block))
            outputs = []
            for row, part in enumerate(slices):
                for cache, new in ((self._keys[block], k[part]), (self._values[block], v[part])):
                    cache[row, :, : len(new)] = new.view(len(new), *cache.shape[1::2]).transpose(0, 1)
                outputs.append(spec.attention_tile(q[part], k[part], v[part], start, window))
            return torch.cat(outputs)

        x = self._dense.hidden(torch.cat(self._prompts), positions, attend)
        self._positions = lengths - 1
        return self._dense.next_tokens(x[ends - 1])

    def _attend(self, block: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention of one new token a row to all tokens of its row."""
        config, positions = self._dense.spec.config, self._positions
        keys, values = self._keys[block], self._values[block]
        rows, seen = torch.arange(len(positions)), int(positions.max()) + 1
        for cache, new in ((keys, k), (values, v)):
            cache[rows, :, positions] = new.view(len(rows), *cache.shape[1::2])
        queries = q.view(len(rows), config.num_kv_heads, -1, config.head_dim)
        scores = queries @ keys[:, :, :seen].mT * config.attention_scale  # [B, K, G, S]
        places = torch.arange(seen)
        last = positions[:, None]
        visible = (places <= last) & (places > last - self._dense.spec.window(block))  # [B, S]
        probabilities = torch.softmax(torch.where(visible[:, None, None], scores, -math.inf), -1)
        return (probabilities @ values[:, :, :seen]).reshape(len(rows), -1)
