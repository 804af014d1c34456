# SPDX-License-Identifier: Apache-2.0
"""Golden vectors: what the plans of a bundle must compute on any device, computed here by other code.

What a method does is known from its promise and its options (`promises`). The reference is `reference`; update
rules are torch.optim's. Every tolerance is ten times what fp32 differs from float64 in the reference itself, and at least a floor
(docs/explanation/golden_vectors.md). Of a method that promises nothing, the model's loss and answers at the golden adapter are
known, and the loss of its first step, from running it here (`first_step`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bespoke.contracts import PROMISED_OPTIONS
from bespoke.data.text import Tokenizer
from bespoke.errors import PluginError
from bespoke.golden.batch import drawn_arrays, drawn_tokens, padded
from bespoke.golden.document import (
    GOLDEN_VERSION,
    Golden,
    GoldenDocument,
    GradientGolden,
    GradientSource,
    Known,
    MethodGolden,
    PieceGolden,
    filled_adapter,
    places,
)
from bespoke.golden.first_order import FirstOrder
from bespoke.golden.first_step import first_step
from bespoke.golden.promises import (
    GoldenMethod,
    check_promise,
    gradient_source,
    promised_numbers,
    trained_pieces,
    update_rule,
)
from bespoke.golden.rates import STEPS
from bespoke.golden.reference import Lane, Reference
from bespoke.golden.texts import golden_texts
from bespoke.golden.weights import BundleWeights
from bespoke.golden.zeroth_order import ESTIMATES, ZerothOrder
from bespoke.model.spec import ModelSpec
from bespoke.plan.instructions import DType
from bespoke.plan.values import arrays_of

__all__ = ["MANY_WEIGHTS", "longest_golden", "make_golden", "one_thread"]

SEED = 0
FLOOR = 1e-5  # relative
SMALL = 1e-6  # of the largest gradient: below it, a gradient is compared absolutely
MANY_WEIGHTS = 2**26  # in the blocks: from here on, a token costs enough to be saved
LONG = 1.2345678901234567e-100  # no number in JSON is longer
B_SHARE = 0.1  # of the base's output, roughly: what the golden adapter adds to it

Run = FirstOrder | ZerothOrder


def make_golden(
    folder: Path,
    model: ModelSpec,
    files: Mapping[str, Path],
    initial: Mapping[str, np.ndarray],
    methods: Sequence[GoldenMethod],
    shortest: int,
    tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    rounding: float = 0.0,
) -> Golden:
    """The golden vectors of a bundle.

    folder:   of the model, in transformers' layout
    files:    converted weights, by group
    initial:  the bundle's adapter
    shortest: the shortest of its sequence lengths
    progress: a function that is called with (done, total)
    rounding: largest relative error of a loss on a target that computes in less than fp32
    """
    with one_thread():
        return _make_golden(folder, model, files, initial, methods, shortest, tokenizer, progress, rounding)


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums are added up in an order that depends on the number of threads, which the numbers in a bundle must not."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _make_golden(
    folder: Path,
    model: ModelSpec,
    files: Mapping[str, Path],
    initial: Mapping[str, np.ndarray],
    methods: Sequence[GoldenMethod],
    shortest: int,
    tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None],
    rounding: float,
) -> Golden:
    document = _draft(model)
    start = filled_adapter(initial, document)
    tokens, mask = _batch(model, methods, shortest)
    arrays = _arrays(model, methods, tokens)
    runs: dict[Hashable, Run] = {}  # methods that must do the same share one reference
    of: list[Run | None] = []
    for run in (_run(m, model, start, rounding) for m in methods):
        of.append(None if run is None else runs.setdefault(run.key, run))
    first = any(isinstance(run, FirstOrder) for run in runs.values())
    total = _visits(model, first, bool(runs))
    reference = Reference(folder, model, BundleWeights(files), _Visits(progress, total))
    base = [Lane(_adapter(model, start), dtype, first) for dtype in (torch.float64, torch.float32)]
    inputs, targets = (torch.from_numpy(part.astype(np.int64)) for part in (tokens[:, :-1], tokens[:, 1:]))
    counted = torch.from_numpy(mask[:, 1:].astype(np.float64))
    for step in range(1, STEPS + 1):
        lanes = base if step == 1 else []
        for run in runs.values():
            lanes = lanes + run.lanes(step, base)
        if lanes:
            reference.run(lanes, inputs, targets, counted)
        for run in runs.values():
            run.advance(step, base)
    progress(total, total)
    exact, rough = base
    largest = max((float(g.norm()) for g in exact.gradients.values()), default=0.0)
    floor = max(FLOOR, rounding)
    return Golden(
        document=document.model_copy(
            update={
                "loss": known(exact.mean_loss, rough.mean_loss, floor=floor),
                "next_token_loss": known(float(exact.losses[0, -1]), float(rough.losses[0, -1]), floor=floor),
                "pieces": [
                    _piece(p, exact, rough, largest) if model.lora.trains(p.name) else p for p in document.pieces
                ],
                "methods": [
                    first_step(
                        m,
                        files,
                        start,
                        padded(tokens, mask, arrays, m.training.batch_size, m.plans[0].sequence_length),
                        SEED,
                        trained_pieces(m, start),
                    )
                    if run is None
                    else run.result(m.name)
                    for m, run in zip(methods, of, strict=True)
                ],
                "texts": golden_texts(tokenizer, SEED) if tokenizer is not None else [],
            }
        ),
        tokens=tokens,
        mask=mask,
        gradients={
            p.name: _elements(p, exact.gradients[p.name]).astype(np.float32)
            for p in document.pieces
            if exact.gradients and model.lora.trains(p.name)
        },
        batch_arrays=arrays,
    )


def longest_golden(
    model: ModelSpec, methods: Sequence[GoldenMethod], shortest: int, tokenizer: Tokenizer | None
) -> Golden:
    """At least as many numbers as `make_golden` gives, each in the longest form that JSON has: for the size of the file."""
    number = Known(value=-LONG, tolerance=LONG)
    document = _draft(model)
    tokens, mask = _batch(model, methods, shortest)
    shapes = {f"{group}.{name}": shape for group in model.blocks for name, shape in model.adapter_shapes(group).items()}
    first = any(m.promises == "exact_gradients" for m in methods)
    gradient = GradientGolden(norm=number, tolerance=LONG)
    trained = [p for p in document.pieces if first and model.lora.trains(p.name)]
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    return Golden(
        document=document.model_copy(
            update={
                "b_scale": LONG,
                "loss": number,
                "next_token_loss": number,
                "pieces": [
                    p.model_copy(update={"gradient": gradient if p in trained else None}) for p in document.pieces
                ],
                "methods": [_longest(m, list(shapes), number) for m in methods],
                "texts": golden_texts(tokenizer, SEED) if tokenizer is not None else [],
            }
        ),
        tokens=tokens,
        mask=mask,
        gradients={p.name: np.zeros(len(places(p, sizes[p.name], SEED)), np.float32) for p in trained},
        batch_arrays=_arrays(model, methods, tokens),
    )


def _longest(m: GoldenMethod, pieces: list[str], number: Known) -> MethodGolden:
    check_promise(m)
    trained = trained_pieces(m, pieces)
    row, knows = [number] * len(trained), m.promises is not None
    count = promised_numbers(m.options)[0] if knows else 0
    return MethodGolden(
        name=m.name,
        learning_rates=[LONG] * STEPS,
        micro_batches=2,
        losses=[number] * (STEPS if knows else 1),
        recorded=[[number] * count] * STEPS,
        trained=trained,
        gradient=GradientSource(kind="accumulator", suffix=".gradient", divisor=LONG) if knows else None,
        moved=[row] * (STEPS - 1) if knows else [],
    )


def known(exact: float, rough: float, *, floor: float = FLOOR, least: float = 0.0) -> Known:
    """`exact`, allowed to differ by ten times what `rough` differs, and by a floor."""
    return Known(value=exact, tolerance=max(10 * abs(rough - exact), floor * abs(exact), least))


# ---- methods -----------------------------------------------------------------------------------------------------------


def _run(m: GoldenMethod, model: ModelSpec, start: Mapping[str, np.ndarray], rounding: float) -> Run | None:
    """The reference run of the method by its promise, or None where it promises nothing."""
    check_promise(m)
    trained = trained_pieces(m, start)
    if m.promises == "exact_gradients":
        rule = update_rule(m) if trained else None
        return FirstOrder(rule, gradient_source(m, trained), m.training, trained, start)
    if m.promises is None:
        return None
    kind = PROMISED_OPTIONS[m.promises]
    options = kind(
        **{name: getattr(m.options, name) for name in kind.model_fields}
    )  # what a method has besides changes no promise
    return ESTIMATES[m.promises](options, m.training, trained, model, start, SEED, rounding)


# ---- the batch, the adapter, the gradients -----------------------------------------------------------------------------


def _draft(model: ModelSpec) -> GoldenDocument:
    """The document as far as it is known before anything is computed."""
    nothing = Known(value=0.0, tolerance=0.0)
    pieces = [
        PieceGolden(name=f"{group}.{name}", block=block, tensor=tensor, gradient=None)
        for block, group in enumerate(model.blocks)
        for tensor, name in enumerate(model.adapter_shapes(group))
    ]
    return GoldenDocument(
        version=GOLDEN_VERSION,
        seed=SEED,
        b_scale=float(np.float32(B_SHARE / (model.lora.scale * model.lora.rank**0.5))),
        loss=nothing,
        next_token_loss=nothing,
        pieces=pieces,
        methods=[],
        texts=[],
    )


def _batch(model: ModelSpec, methods: Sequence[GoldenMethod], shortest: int) -> tuple[np.ndarray, np.ndarray]:
    """tokens int32 [R, n + 1], mask uint8 [R, n + 1], as many as every plan takes and as do not cost too much."""
    rows = min(2, min((m.training.batch_size for m in methods), default=1))
    weights = len(model.blocks) * sum(out * width for out, width in model.config.linear_shapes.values())
    most = 32 if weights < MANY_WEIGHTS else 16 // rows
    return drawn_tokens(rows, min(most, shortest), model.config.vocab_size, SEED)


def _arrays(model: ModelSpec, methods: Sequence[GoldenMethod], tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that methods ask for: int32 or float32 [R, n]."""
    asked: dict[str, DType] = {}
    for m in methods:
        for name, dtype in (entry for plan in m.plans for entry in arrays_of(plan).items()):
            if asked.setdefault(name, dtype) != dtype:
                raise PluginError(
                    f"optimizer '{m.name}', array '{name}'",
                    got=dtype,
                    expected=f"{asked[name]}, as another method asks",
                    next_step="Build a bundle for each of them",
                )
    drawn = drawn_arrays(asked, (tokens.shape[0], tokens.shape[1] - 1), model.config.vocab_size, SEED)
    for m in methods:
        if m.promises is not None:  # what it promises holds while its arrays are 0
            drawn |= {name: np.zeros_like(drawn[name]) for plan in m.plans for name in arrays_of(plan)}
    return {name: array if array.dtype == np.float32 else array.astype(np.int32) for name, array in drawn.items()}


def _adapter(model: ModelSpec, pieces: Mapping[str, Any]) -> Callable[[int], dict[str, torch.Tensor]]:
    def adapter(block: int) -> dict[str, torch.Tensor]:
        group = model.blocks[block]
        return {name: torch.as_tensor(pieces[f"{group}.{name}"]) for name in model.adapter_shapes(group)}

    return adapter


def _piece(piece: PieceGolden, exact: Lane, rough: Lane, largest: float) -> PieceGolden:
    if not exact.gradients:
        return piece
    g64, g32 = exact.gradients[piece.name], rough.gradients[piece.name].double()
    least = SMALL * largest if float(g64.norm()) < SMALL * largest else 0.0
    e64, e32 = _elements(piece, g64), _elements(piece, g32)
    tolerance = max(10 * float(np.linalg.norm(e32 - e64)), FLOOR * float(np.linalg.norm(e64)), least)
    norm = known(float(g64.norm()), float(g32.norm()), least=least)
    return piece.model_copy(update={"gradient": GradientGolden(norm=norm, tolerance=tolerance)})


def _elements(piece: PieceGolden, gradient: torch.Tensor) -> np.ndarray:
    flat = gradient.double().numpy().reshape(-1)
    return flat[places(piece, flat.size, SEED)]


# ---- progress ----------------------------------------------------------------------------------------------------------


def _visits(model: ModelSpec, first: bool, steps_taken: bool) -> int:
    """The number of visits of blocks and head, forward and backward, in all steps."""
    blocks = len(model.blocks)
    steps = STEPS if steps_taken else 1
    return steps * (blocks + 1) + (2 * blocks if first else 0)


class _Visits:
    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def __call__(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)
