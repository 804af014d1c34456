# SPDX-License-Identifier: Apache-2.0
"""`bespoke chat`: lines in, answers out; another conversation, one that is too long, an answer that is stopped."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.native.chat_folder import folder
from tests.support.bundles import stories_bundle
from tests.unit.cli.commands import bespoke

__all__ = ["folder", "stories_bundle"]

pytestmark = pytest.mark.xdist_group("cli")
GREEDY = ("--temperature", "0", "--max-tokens", "6")


@pytest.fixture
def state(folder: Path, tmp_path: Path) -> Path:
    PersonalModel.open(folder / "bundle", tmp_path / "state").close()
    return tmp_path / "state"


def chat(bundle: Path, state: Path, lines: list[str], *options: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "bespoke.cli", "chat", str(bundle), "--state", str(state), *GREEDY, *options]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def answers(bundle: Path, state: Path, questions: list[str], system: str = "") -> str:
    """The same conversation in Python, an answer on each line."""
    said = ""
    with PersonalModel.open(bundle, state) as model, model.conversation(max_tokens=6) as conversation:
        new = [{"role": "system", "content": system}] if system else []
        for question in questions:
            said += (
                "".join(piece.text for piece in conversation.feed([*new, {"role": "user", "content": question}])) + "\n"
            )
            new = []
    return said


def test_each_line_is_a_turn_of_one_conversation_until_another_begins(folder: Path, state: Path) -> None:
    bundle = folder / "bundle"
    out, err = chat(
        bundle, state, ["Hello", "And then?", "/new", "Hello", "", "/quit", "never"], "--system", "Be brief."
    )
    assert out == answers(bundle, state, ["Hello", "And then?"], "Be brief.") + answers(
        bundle, state, ["Hello"], "Be brief."
    )
    assert err == ""


@pytest.mark.slow
def test_a_conversation_that_is_too_long_goes_on_with_its_end(folder: Path, state: Path) -> None:
    out, err = chat(folder / "bundle", state, ["word " * 60] * 9)
    assert len(out.splitlines()) >= 9
    assert "it goes on with its last messages" in err
    out, err = chat(folder / "bundle", state, ["word " * 600, "Hello"])
    assert "tokens; expected 1 to" in err
    assert out == answers(folder / "bundle", state, ["Hello"])


def test_ctrl_c_stops_an_answer_and_no_more(folder: Path, state: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "dumb", "OMP_NUM_THREADS": "1"}
        endless = ("--max-tokens", "400", "--temperature", "2")
        asked = ("chat", str(folder / "bundle"), "--state", str(state), *endless)
        os.execv(sys.executable, [sys.executable, "-m", "bespoke.cli", *asked])
    seen = b""

    def until(words: bytes, more: int = 0) -> None:
        nonlocal seen
        begin, deadline = len(seen), time.monotonic() + 60
        while words not in seen[begin:] or len(seen) < begin + more:
            assert time.monotonic() < deadline, seen
            seen += os.read(terminal, 1 << 12)

    until(b"> ")
    os.write(terminal, b"Hello\n")
    until(b"Hello", more=40)
    os.kill(child, signal.SIGINT)
    until(b"> ")
    os.write(terminal, b"/quit\n")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)


def test_a_model_without_a_chat_template_is_refused(stories_bundle: Path, tmp_path: Path) -> None:
    PersonalModel.open(stories_bundle, tmp_path / "state").close()
    refused = bespoke("chat", stories_bundle, "--state", tmp_path / "state")
    assert refused.code == 2
    assert "bespoke generate" in refused.err
