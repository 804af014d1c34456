# SPDX-License-Identifier: Apache-2.0
"""The command line: keys, tokens, and a server with TLS that starts and stops."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.support.federation_key import PRIVATE

from bespoke.bundle.signature import public_key_of

COMMAND = [sys.executable, "-m", "bespoke_federated"]
START_SECONDS = 30


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True)


def test_keys_are_written_once_and_tokens_are_printed(tmp_path: Path) -> None:
    made = run("key", "--folder", str(tmp_path))
    assert made.returncode == 0, made.stderr
    private = tmp_path / "server.pem"
    assert public_key_of(private.read_bytes()).hex() in made.stdout
    assert private.stat().st_mode & 0o077 == 0
    again = run("key", "--folder", str(tmp_path))
    assert again.returncode == 2
    assert "Traceback" not in again.stderr
    tokens = run("token", "--state", str(tmp_path / "state"), "--count", "3").stdout.split()
    assert len(set(tokens)) == 3
    unknown = run("remove", "--state", str(tmp_path / "state"), "nobody")
    assert unknown.returncode == 2
    assert "not enrolled" in unknown.stderr
    assert all(token.encode() not in (tmp_path / "state" / "edge.sqlite").read_bytes() for token in tokens)


def test_a_server_with_tls_answers_and_stops(bundle: Path, tmp_path: Path) -> None:
    run("key", "--folder", str(tmp_path))
    (tmp_path / "ours.pem").write_bytes(PRIVATE)
    certificate = str(tmp_path / "tls-cert.pem")
    files = ["--key", str(tmp_path / "ours.pem"), "--tls-cert", certificate, "--tls-key", str(tmp_path / "tls-key.pem")]
    port = free_port()
    place = ["--state", str(tmp_path / "state"), "--port", str(port)]
    process = subprocess.Popen([*COMMAND, "serve", str(bundle), *files, *place], stderr=subprocess.PIPE, text=True)
    trusted = ssl.create_default_context(cafile=certificate)
    try:
        assert answer_of(f"https://localhost:{port}/v1/health", trusted, process) == "words"
    finally:
        process.terminate()
        _, log = process.communicate(timeout=20)
    assert process.returncode in (0, -15), log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--devices", "1"], "least_devices"),
        (["--tls-cert", "server.pem"], "both or none"),
        ([], "another server"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(bundle: Path, tmp_path: Path, arguments: list[str], told: str) -> None:
    run("key", "--folder", str(tmp_path))
    key = tmp_path / "server.pem"
    if arguments:
        key.write_bytes(PRIVATE)
    arguments = [str(key) if one == "server.pem" else one for one in arguments]
    done = run("serve", str(bundle), "--key", str(key), "--state", str(tmp_path / "state"), *arguments)
    assert done.returncode in (2, 8)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def answer_of(url: str, trusted: ssl.SSLContext, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return httpx.get(url, verify=trusted).json()["task"]
        except httpx.TransportError:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)
