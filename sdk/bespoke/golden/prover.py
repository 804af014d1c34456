# SPDX-License-Identifier: Apache-2.0
"""A device proves itself: its plans, graphs, weights and tokenizer against the bundle's golden vectors.

Needs neither the compiler nor transformers. Every section of every plan is run: all of the plan for answers, of a method's plans
`evaluate_step`, and training from the golden adapter, three steps at the shortest sequence length and one at the others, on a batch
that is padded to each length (what is padded changes nothing). What is compared with what is in docs/explanation/golden_vectors.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bespoke.bundle.plan_records import MethodRecord
from bespoke.bundle.reader import Bundle
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_from_file import tokenizer_of
from bespoke.data.turns import Turns, protect_markers
from bespoke.errors import BespokeError, GoldenMismatch
from bespoke.golden.batch import padded
from bespoke.golden.document import Golden, Known, MethodGolden, filled_adapter, places, read_golden
from bespoke.golden.rates import rates
from bespoke.plan.kinds import GENERATION
from bespoke.reference.machine import AnsweringMachine, Machine, adapter_tensors
from bespoke.reference.torch_settings import computing
from bespoke.rules.batches import TokenBatch
from bespoke.rules.report import megabytes
from bespoke.rules.verification import PassedCheck, VerifyReport

__all__ = ["verify_bundle"]

RATE_TOLERANCE = 1e-6  # relative: schedules are a few operations in float64


def verify_bundle(
    bundle: Bundle, *, files: bool = True, on_check: Callable[[PassedCheck], None] | None = None
) -> VerifyReport:
    """Hashes of all files, then the golden vectors on this machine; `on_check` gets each check as it passes.

    Raises BundleError for a file that is damaged, GoldenMismatch naming method, sequence length and tensor for a number that is
    not what the reference has.
    """
    began = time.monotonic()
    checks: list[PassedCheck] = []

    def passed(check: PassedCheck) -> None:
        checks.append(check)
        if on_check is not None:
            on_check(check)

    counted = 0
    if files:
        counted = bundle.verify_files()
        passed(PassedCheck("files", None, None, counted, 0.0))
    name = bundle.manifest.golden
    if name is not None:
        initial = bundle.initial_adapter()
        shapes = {piece: array.shape for piece, array in initial.items()}
        golden = read_golden(bundle.mapped(name), name, shapes, bundle.manifest.text.vocab_size)
        with computing(None):
            _Prover(bundle, golden, initial, passed).prove()
    return VerifyReport(name is not None, counted, tuple(checks), time.monotonic() - began)


class _Prover:
    def __init__(
        self, bundle: Bundle, golden: Golden, initial: Mapping[str, np.ndarray], passed: Callable[[PassedCheck], None]
    ) -> None:
        self.bundle = bundle
        self.golden = golden
        self.document = golden.document
        self.adapter = filled_adapter(initial, golden.document)
        self.passed = passed

    def prove(self) -> None:
        self._texts()
        known = {method.name: method for method in self.document.methods}
        variants = [variant for method in self.bundle.manifest.methods for variant in method.variants]
        for budget, record in variants:
            machine = Machine(self.bundle, record)
            for length in machine.sequence_lengths:
                run = _MethodRun(self, machine, length, budget)
                run.evaluate()
                if record.name in known and known[record.name].learning_rates:
                    run.train(known[record.name])
        smaller = [record.plan for record in self.bundle.manifest.smaller_generation]
        for plan in (self.bundle.manifest.generation, *smaller):
            if plan is not None:
                self._next_token(AnsweringMachine(self.bundle, plan))

    def _next_token(self, machine: AnsweringMachine) -> None:
        """The last token of the first row, from a prefill and one decode, and from one decode of the last tokens together."""
        *prompt, target = self.golden.tokens[0].tolist()
        adapter = adapter_tensors(self.adapter)
        checks = _PlanChecks(self, "The plan for answers", GENERATION, machine.chunk)

        def hold(section: str, logits: torch.Tensor) -> None:
            loss = float(torch.logsumexp(logits.double(), 0) - logits[target].double())
            checks.hold(f"next-token loss of prefill and {section}", [self.document.next_token_loss], [loss])

        machine.prefill(prompt[:-1], 0, adapter)
        hold("decode", machine.decode(prompt[-1], len(prompt) - 1, adapter)[:, 0])
        if 1 < machine.rows <= self.bundle.manifest.context_length:
            first = max(0, len(prompt) - machine.rows)
            machine.prefill(prompt[:first], 0, adapter)
            hold("decode_rows", machine.decode_rows(prompt[first:], first, adapter)[:, len(prompt) - first - 1])

    def _texts(self) -> None:
        if not self.document.texts:
            return
        tokenizer = _tokenizer(self.bundle)
        for number, text in enumerate(self.document.texts):
            try:
                ids = tokenizer.encode(text.text) if tokenizer is not None else []
            except BespokeError as error:
                ids = []
                got = str(error)
            else:
                got = f"tokens {_shortened(ids)}" if tokenizer is not None else "a bundle without tokenizer"
            if ids != text.ids:
                raise GoldenMismatch(
                    f"Golden text {number} of {len(self.document.texts)}, {text.text[:60]!r}",
                    got=got,
                    expected=f"tokens {_shortened(text.ids)}",
                    next_step="Check the version of the tokenizers package; build the bundle again if its tokenizer was changed",
                )
        self.passed(PassedCheck("texts", None, None, len(self.document.texts), 0.0))


class _PlanChecks:
    """Compares the results of a plan with golden values."""

    def __init__(self, prover: _Prover, where: str, method: str, length: int) -> None:
        self.prover = prover
        self.where = where
        self.method = method
        self.length = length

    def hold(self, what: str, wanted: Sequence[Known], got: Sequence[float]) -> None:
        if len(got) != len(wanted):
            raise self.mismatch(what, got=f"{len(got)} values", expected=f"{len(wanted)}")
        for number, (known, value) in enumerate(zip(wanted, got, strict=True), 1):
            if not known.holds(value):
                which = f"{what}, value {number}" if len(wanted) > 1 else what
                raise self.mismatch(
                    which, got=f"{value:.8g}", expected=f"{known.value:.8g} within {known.tolerance:.3g}"
                )
        self.passed(what, len(wanted), max(_share(v - k.value, k.tolerance) for k, v in zip(wanted, got, strict=True)))

    def passed(self, what: str, compared: int, worst: float) -> None:
        self.prover.passed(PassedCheck(what, self.method, self.length, compared, worst))

    def mismatch(self, what: str, *, got: str, expected: str) -> GoldenMismatch:
        return GoldenMismatch(
            f"{self.where}, {what}",
            got=got,
            expected=expected,
            next_step="Build the bundle again; if that changes nothing, this runtime computes something else: report it",
        )


class _MethodRun(_PlanChecks):
    """A method at a sequence length, by its plan for a smaller `budget` if that is given."""

    def __init__(self, prover: _Prover, machine: Machine, length: int, budget: int | None) -> None:
        name = machine.method.name
        of = "" if budget is None else f", planned for {megabytes(budget)}"
        super().__init__(prover, f"Method '{name}' at sequence length {length}{of}", name, length)
        self.document = prover.document
        self.machine = machine
        self.batch = _batch(prover.golden, machine.method, length)

    def evaluate(self) -> None:
        """evaluate_step at the golden adapter."""
        loss_sum, _ = self.machine.evaluate_batch(self.batch, adapter_tensors(self.prover.adapter))
        self.hold("evaluation loss", [self.document.loss], [loss_sum / self.batch.tokens_trained])

    def train(self, known: MethodGolden) -> None:
        """Steps from the golden adapter with fresh optimizer state: losses, recorded values, gradients, how far pieces move."""
        self._rates(known)
        training = self.machine.method.training
        micro_batches = training.accumulation if training.accumulates else 1
        if known.micro_batches > micro_batches:
            raise GoldenMismatch(
                f"Golden vectors of method '{self.machine.method.name}', micro_batches",
                got=str(known.micro_batches),
                expected=f"at most {micro_batches}, as its training says",
                next_step="Build the bundle again",
            )
        buffers = self.machine.buffers
        buffers.fill(self.prover.adapter)
        if known.gradient is not None and known.gradient.kind == "difference":
            self._step(known, 1, known.gradient.divisor)
            self._gradients(known)
        steps = len(known.learning_rates) if self.length == self.machine.sequence_lengths[0] else 1
        for step, rate in enumerate(known.learning_rates[:steps], 1):
            outcome = self._step(known, step, rate)
            if step <= len(known.recorded):
                wanted = known.recorded[step - 1]
                self.hold(f"recorded values of step {step}", wanted, outcome.recorded[: len(wanted)])
            if step <= len(known.losses):
                self.hold(
                    f"loss of step {step}", [known.losses[step - 1]], [float(outcome.metrics.get("loss", math.nan))]
                )
            if step == 1 and known.gradient is not None and known.gradient.kind != "difference":
                self._gradients(known)
            if self.machine.replayable and step == 1:
                self._replay(outcome.recorded, rate)
            else:
                buffers.flip()
            if step <= len(known.moved):
                self._moved(known, step)

    def _step(self, known: MethodGolden, step: int, rate: float) -> Any:
        return self.machine.train_step(
            [self.batch] * known.micro_batches, learning_rate=rate, step=step, seed=self.document.seed
        )

    def _rates(self, known: MethodGolden) -> None:
        got = rates(self.machine.method.training, len(known.learning_rates))
        wanted = [Known(value=rate, tolerance=rate * RATE_TOLERANCE) for rate in known.learning_rates]
        self.hold("learning rates of the schedule", wanted, got)

    def _gradients(self, known: MethodGolden) -> None:
        source = known.gradient
        assert source is not None
        worst, compared = 0.0, 0
        pieces = {piece.name: piece for piece in self.document.pieces}
        for name in known.trained:
            piece, elements = pieces[name], self.prover.golden.gradients[name]
            gradient = self._gradient(name, source.kind, source.suffix) / source.divisor
            wanted = piece.gradient
            assert wanted is not None
            norm = float(np.linalg.norm(gradient))
            picked = gradient.reshape(-1)[places(piece, gradient.size, self.document.seed)]
            apart = float(np.linalg.norm(picked - elements))
            if not wanted.norm.holds(norm) or not apart <= wanted.tolerance:
                at = int(np.argmax(np.abs(picked - elements)))
                raise self.mismatch(
                    f"gradient of {name}",
                    got=f"norm {norm:.8g}, {len(elements)} elements {apart:.3g} away (number {at}: {picked[at]:.8g})",
                    expected=f"norm {wanted.norm.value:.8g} within {wanted.norm.tolerance:.3g}, elements within "
                    f"{wanted.tolerance:.3g} (number {at}: {elements[at]:.8g})",
                )
            worst = max(worst, _share(norm - wanted.norm.value, wanted.norm.tolerance), _share(apart, wanted.tolerance))
            compared += 1 + len(elements)
        self.passed("gradients", compared, worst)

    def _gradient(self, name: str, kind: str, suffix: str) -> np.ndarray:
        """float64, still to be divided."""
        buffers = self.machine.buffers
        if kind == "difference":
            return _float64(buffers.current[name]) - _float64(buffers.following[name])
        held = buffers.step_values if kind == "accumulator" else buffers.following
        if name + suffix not in held:
            raise self.mismatch(
                f"gradient of {name}", got=f"a plan without '{name + suffix}'", expected="a plan that keeps it"
            )
        return _float64(held[name + suffix])

    def _moved(self, known: MethodGolden, step: int) -> None:
        worst, now = 0.0, self.machine.adapter()
        for name, wanted in zip(known.trained, known.moved[step - 1], strict=True):
            got = float(np.linalg.norm(now[name].astype(np.float64) - self.prover.adapter[name]))
            if not wanted.holds(got):
                raise self.mismatch(
                    f"{name} after step {step}",
                    got=f"a distance of {got:.8g} from its start",
                    expected=f"{wanted.value:.8g} within {wanted.tolerance:.3g}",
                )
            worst = max(worst, _share(got - wanted.value, wanted.tolerance))
        self.passed(f"updates after step {step}", len(known.trained), worst)

    def _replay(self, recorded: Sequence[float], rate: float) -> None:
        """The journal must give the very bits that the step stored."""
        buffers = self.machine.buffers
        stored = {name: value.clone() for name, value in buffers.following.items()}
        self.machine.replay_step(recorded, learning_rate=rate, step=1, seed=self.document.seed)
        for name, value in stored.items():
            if not torch.equal(value, buffers.current[name]):
                raise self.mismatch(
                    f"{name} replayed from the journal", got="other bits", expected="those that the step stored"
                )
        self.passed("replay of step 1", len(stored), 0.0)


def _batch(golden: Golden, method: MethodRecord, length: int) -> TokenBatch:
    """The golden rows, padded on the right and with empty rows."""
    rows, positions = golden.tokens.shape[0], golden.tokens.shape[1] - 1
    size = method.training.batch_size
    if rows > size or positions > length:
        raise GoldenMismatch(
            f"Golden batch for method '{method.name}'",
            got=f"{rows} rows of {positions} positions",
            expected=f"at most {size} of {length}, as its plan takes",
            next_step="Build the bundle again",
        )
    return padded(golden.tokens, golden.mask, golden.batch_arrays, size, length)


def _tokenizer(bundle: Bundle) -> Tokenizer | None:
    """The tokenizer of examples: the markers of the chat template are protected."""
    text = bundle.manifest.text
    tokenizer = tokenizer_of(text, bundle.read)
    if tokenizer is not None and text.turns is not None:
        protect_markers(tokenizer, Turns.from_bytes(bundle.read(text.turns), text.turns))
    return tokenizer


def _float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float64)


def _share(difference: float, tolerance: float) -> float:
    """The share of the tolerance that a difference uses."""
    return 0.0 if difference == 0 else abs(difference) / tolerance if tolerance else math.inf


def _shortened(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= 12 else f"{str(list(ids[:12]))[:-1]}, ...] ({len(ids)})"
