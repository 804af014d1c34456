# SPDX-License-Identifier: Apache-2.0
"""What stays on the screen of a terminal when a command has ended: results and errors, and no bar of what is over."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Built

pytestmark = pytest.mark.xdist_group("cli")


def on_a_terminal(*arguments: object) -> tuple[int, str]:
    """Exit code of a command line, and what the terminal that it ran on shows then."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        os.execv(sys.executable, [sys.executable, "-m", "bespoke.cli", *map(str, arguments)])
    written = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            break
        written += piece
        if not piece:
            break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen(written.decode())


def screen(written: str) -> str:
    """The lines left of what was written, by the control codes that bars are drawn with."""
    lines, row, column = [""], 0, 0
    for code, move, letter, text in re.findall(r"(\x1b\[\??([\d;]*)([A-Za-z]))|([^\x1b])", written):
        if code:
            if letter == "A":
                row = max(0, row - int(move or 1))
            elif letter == "K":
                lines[row] = ""
            else:
                assert letter in "mhl", code  # colours; the cursor shown and hidden
        elif text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + 1 :]
            column += 1
    return "\n".join(line for line in lines if line.strip())


def test_the_screen_is_read_as_a_terminal_shows_it() -> None:
    assert screen("one\r\ntwo\r\x1b[2K\x1b[1Athr") == "thr"  # onto the line above, of which the rest stays
    assert screen("\x1b[32m━━\x1b[0m 3/4\r\x1b[2Kdone\r\n") == "done"


@pytest.mark.slow
def test_a_build_leaves_its_result_alone_and_no_warning_of_what_it_imports(stories: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.bundle"
    asked = ("--optimizers", "mezo", "--sequence-lengths", "8", "--rank", "2", "--data", "none", "--licence", "MIT")
    code, shown = on_a_terminal("build", out, "--model", stories, *asked)
    result, hint = shown.splitlines()
    assert (code, result.partition(": ")[0]) == (0, str(out)), shown
    assert hint.startswith("It runs on torch only")


@pytest.mark.slow
def test_a_bar_of_what_is_over_does_not_stay_above_an_error(built: Built, examples: Path, tmp_path: Path) -> None:
    state = ("--state", tmp_path / "s", "--engine", "torch")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(examples.read_text() + '{"text": 3}\n')
    code, shown = on_a_terminal("train", built.bundle, *state, "--examples", bad)
    assert code == 5
    assert shown.startswith(f"bespoke: {bad}, row 13: ")
    code, shown = on_a_terminal(
        "train", built.bundle, *state, "--examples", examples, "--memory-mb", "0.1", "--run-steps", "1"
    )
    assert code == 10
    added, error = shown.splitlines()
    assert added == f"{examples}: 0 examples added, 12 were there already"
    assert error.startswith("bespoke: Training with 'mesp'")
