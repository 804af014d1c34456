# SPDX-License-Identifier: Apache-2.0
"""The device core on pretrained models, against transformers and peft with the weights that the bundle holds."""

from __future__ import annotations

import copy
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from bespoke import PersonalModel
from tests.real_model.conftest import RealModel
from tests.support.checks import record_check
from tests.support.models import in_float64, rope_of
from tests.support.reading import newest_run, slot

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real model")]

PROMPTS = (
    "What is the capital of France?",
    "Name three colours.",
    "Write two sentences about mountains.",
    "How do I boil eggs?",
    "Who wrote Hamlet?",
    "What is photosynthesis?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "Tell a joke.",
    "What is 12 times 4?",
    "Explain gravity to a child.",
    "What should I pack for the beach?",
    "Say good morning in French.",
    "List the planets.",
    "What does a vet do?",
    "How far is the moon?",
    "Write a short poem about rain.",
    "What is a verb?",
    "How can I sleep better?",
    "What is Python used for?",
)
NEW_TOKENS = 100
NEAR_TIE = 1e-3  # gap of the two best logits below which rounding decides
STEPS, RATE = 20, 2e-4
BETA1 = 0.9  # AdamW's beta1
ADAPTERS = 5

Gradients = dict[str, torch.Tensor]
"""By the piece's name in a bundle."""


def test_answers_are_those_of_transformers(real_model: RealModel, tmp_path: Path) -> None:
    """Greedy, 100 tokens, up to a tie; and their log-probabilities to 1e-4 a token."""
    cut, furthest, compared = 0, 0.0, 0
    with PersonalModel.open(real_model.bundle, tmp_path / "state") as model:
        for prompt in PROMPTS:
            ids = real_model.prompt(prompt)
            answer, logits = greedy(real_model, ids)
            conversation = model.conversation(max_tokens=NEW_TOKENS)
            with conversation:
                conversation.feed(ids)
                found = [piece.token for piece in conversation if piece.token is not None]
            pairs = enumerate(zip(found, answer, strict=False))
            same = next((place for place, (a, b) in pairs if a != b), min(len(found), len(answer)))
            compared += same
            if same < len(answer):
                best = np.sort(logits[same])[-2:]
                assert best[1] - best[0] < NEAR_TIE, f"{prompt}: token {same} of {len(answer)}"
                cut += 1
            (score,) = model.score(ids, [answer[:same]])
            expected = torch.log_softmax(torch.from_numpy(logits[:same]), -1)
            total = float(expected[torch.arange(same), torch.tensor(answer[:same])].sum())
            furthest = max(furthest, abs(score.log_probability - total) / max(1, score.tokens))
    assert furthest <= 1e-4
    assert cut <= 2
    record_check(
        f"{real_model.name}'s greedy answers, core against transformers",
        {
            "prompts": len(PROMPTS),
            "tokens alike": compared,
            "cut at a tie": cut,
            "nats a token apart": f"{furthest:.1e}",
        },
    )


def greedy(real_model: RealModel, ids: list[int]) -> tuple[list[int], np.ndarray]:
    """Tokens up to an end, and the logits [tokens, V] that each was chosen by."""
    past, chosen, seen = None, [], []
    step = torch.tensor([ids])
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            out = real_model.network(input_ids=step, past_key_values=past, use_cache=True)
        past, logits = out.past_key_values, out.logits[0, -1]
        token = int(logits.argmax())
        if token in real_model.ends:
            break
        chosen.append(token)
        seen.append(logits.numpy())
        step = torch.tensor([[token]])
    return chosen, np.array(seen)


def test_twenty_steps_are_those_of_torch_and_peft(real_model: RealModel, tmp_path: Path) -> None:
    """AdamW on one conversation: each loss, and the adapter behind them, before any gate."""
    losses: list[float] = []
    with PersonalModel.open(real_model.bundle, tmp_path / "state") as model:
        model.examples.add(real_model.example(), use="train")
        stop = {"on_step": lambda step, loss: losses.append(loss), "stop": lambda: len(losses) >= STEPS}
        model.train(run_steps=2 * STEPS, **stop)
    assert STEPS <= newest_run(tmp_path / "state")["step"] == len(losses) < 2 * STEPS
    reached = slot(tmp_path / "state")
    pieces = load_file(real_model.bundle / "adapter" / "initial.safetensors")
    with real_model.in_peft() as adapted:
        parameters = {}
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.data = torch.from_numpy(pieces[ours(name)].copy())
                parameters[ours(name)] = value.requires_grad_()
        rule = torch.optim.AdamW(parameters.values(), lr=RATE, betas=(BETA1, 0.999), eps=1e-8, weight_decay=0.0)
        expected = []
        for _ in losses:
            loss = loss_of(adapted, real_model)
            rule.zero_grad()
            loss.backward()
            rule.step()
            expected.append(float(loss))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    distances = {}
    for name, value in parameters.items():
        moved = value.detach() - torch.from_numpy(pieces[name])
        distances[name] = float(
            torch.linalg.norm(torch.from_numpy(reached[name]) - value.detach()) / torch.linalg.norm(moved)
        )
    assert max(distances.values()) <= 2e-2, max(distances.items(), key=lambda item: item[1])
    record_check(
        f"{real_model.name} trained for 20 steps, core against torch and peft",
        {
            "furthest loss": f"{max(abs(a - b) for a, b in zip(losses, expected, strict=True)):.1e}",
            "furthest piece, of how far it moved": f"{max(distances.values()):.1e}",
        },
    )


def test_gradients_are_those_of_float64(real_model: RealModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece over several random adapters: in the median within 1e-5 of its norm, or as near as autograd in float32.

    One adapter decides little. Rounding in any one graph moves the gradients of the first blocks by as much as they are off. With
    one adapter of seven the core's are further off than autograd's, by less than a factor of 2.
    """
    rope = load_file(real_model.bundle / "weights" / "rope.safetensors")
    monkeypatch.setattr(real_model.network.model.rotary_emb, "forward", rope_of(rope))  # all have the same inputs
    core, autograd = [], []
    for seed in range(ADAPTERS):
        adapter, single, exact = autograd_gradients(real_model, seed, tmp_path / f"adapter {seed}")
        core.append(relative_errors(core_gradients(real_model, adapter, tmp_path, seed), exact))
        autograd.append(relative_errors(single, exact))
        for name, error in core[-1].items():
            assert error <= max(1e-5, 2 * autograd[-1][name]), f"{name}: {error:.1e}, autograd {autograd[-1][name]:.1e}"
    errors, of_autograd = medians(core), medians(autograd)
    for name, error in errors.items():
        assert error <= max(1e-5, of_autograd[name]), f"{name}: {error:.1e}, autograd {of_autograd[name]:.1e}"
    assert statistics.median(errors.values()) <= statistics.median(of_autograd.values())
    record_check(
        f"{real_model.name}'s gradients, core against autograd in float64",
        {
            "adapters": ADAPTERS,
            "pieces": len(errors),
            "within 1e-5": sum(error <= 1e-5 for error in errors.values()),
            "no further than autograd in float32": sum(error <= of_autograd[name] for name, error in errors.items()),
            "furthest piece": f"{max(errors.values()):.1e}",
            "autograd's": f"{max(of_autograd.values()):.1e}",
            "furthest of one adapter": f"{max(max(draw.values()) for draw in core):.1e}",
        },
    )


def autograd_gradients(real_model: RealModel, seed: int, folder: Path) -> tuple[Path, Gradients, Gradients]:
    """A random adapter, saved by peft; its gradients in float32 and in float64."""
    chance = torch.Generator().manual_seed(seed)
    with real_model.in_peft() as adapted:
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.data = torch.randn(value.shape, generator=chance) * (0.05 if "lora_A" in name else 0.01)
        adapted.save_pretrained(str(folder))
        adapter = {name: value.data.clone() for name, value in adapted.named_parameters() if "lora_" in name}
        single = gradients(adapted, real_model)
    with real_model.in_peft(in_float64(copy.deepcopy(real_model.network))) as adapted:
        for name, value in adapted.named_parameters():
            if name in adapter:
                value.data = adapter[name].double()
        return folder, single, gradients(adapted, real_model)


def core_gradients(real_model: RealModel, adapter: Path, folder: Path, seed: int) -> Gradients:
    """AdamW's first moment holds them: at a rate that moves nothing it is (1 - beta1^n) times the gradient after n steps."""
    state, begun = folder / f"state {seed}", []
    with PersonalModel.open(real_model.bundle, state) as model:
        model.import_adapter(adapter, trust_base=True)
        model.examples.add(real_model.example(), use="train")
        model.train(
            run_steps=STEPS,
            learning_rate=1e-30,
            on_step=lambda step, loss: begun.append(step),
            stop=lambda: bool(begun),
        )
    steps, moments = newest_run(state)["step"], slot(state)
    assert 0 < steps < STEPS
    return {
        name.removesuffix(".m"): torch.from_numpy(moment) / (1 - BETA1**steps)
        for name, moment in moments.items()
        if name.endswith(".m")
    }


def relative_errors(gradients: Gradients, exact: Gradients) -> dict[str, float]:
    """The norm of each piece's error relative to the norm of its gradient."""
    return {
        name: float(torch.linalg.norm(gradients[name].double() - expected) / torch.linalg.norm(expected))
        for name, expected in exact.items()
    }


def medians(draws: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(draw[name] for draw in draws) for name in draws[0]}


def gradients(adapted: Any, real_model: RealModel) -> Gradients:
    parameters = {ours(name): value.requires_grad_() for name, value in adapted.named_parameters() if "lora_" in name}
    found = torch.autograd.grad(loss_of(adapted, real_model), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def loss_of(network: Any, real_model: RealModel) -> torch.Tensor:
    tokens, prompt = real_model.row()
    row = torch.tensor([tokens])
    logits = network(input_ids=row[:, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits[prompt - 1 :], row[0, prompt:])


def ours(name: str) -> str:
    """The piece's name in a bundle."""
    found = re.search(r"layers\.(\d+)\.\w+\.(\w+)\.lora_([AB])", name)
    assert found, name
    return f"block_{int(found[1]):02d}.{found[2]}.lora_{found[3]}"
