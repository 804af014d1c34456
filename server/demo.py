# SPDX-License-Identifier: Apache-2.0
"""A federation on this machine: a cloud on Flower, an edge, and three devices with the device core. Each is a process of its own.

    make federation-demo

The model is a small one with random weights, so nothing is learned that anybody could read. With another model the same passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

SERVER = Path(__file__).resolve().parent
COMMAND = [str(SERVER / ".venv" / "bin" / "python"), "-m", "bespoke_federated"]
DEVICES, LENGTH = 3, 24
TOLD = ("edge ", "round ", "privacy: ")  # what begins a line of the cloud, between those of Flower
ASK_SECONDS = 1.0
START_SECONDS = 120.0
STOP_SECONDS = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Let three devices learn together: cloud, edge and devices.")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/federation"), help="all that the parties keep")
    parser.add_argument("--device", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device:
        return take_part(arguments.out, arguments.device, arguments.url, arguments.token)
    return show(arguments.out.absolute(), arguments.rounds)


def show(out: Path, rounds: int) -> int:
    """Starts all parties, and prints what each does until the rounds have ended."""
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([*COMMAND, "key", "--folder", out], check=True, stdout=subprocess.DEVNULL)
    build(out)
    with ExitStack() as stack:
        url = start_edge(out, stack)
        command = [*COMMAND, "token", "--state", out / "edge", "--count", str(DEVICES)]
        tokens = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        settings = [
            "--rounds",
            str(rounds),
            "--devices",
            str(DEVICES),
            "--least-devices",
            str(DEVICES),
            "--rate",
            "0.05",
        ]
        lead = [*COMMAND, "cloud", out / "together.bundle", "--state", out / "cloud", "--edge", out / "edge", *settings]
        say("cloud", "starts Flower: a SuperLink, a SuperNode for the edge, and a run")
        cloud = stack.enter_context(running(lead, out / "cloud.log", subprocess.PIPE))
        devices = []
        for number, token in enumerate(tokens, 1):
            name = f"device {number}"
            part = [sys.executable, __file__, "--out", out, "--device", name, "--url", url, "--token", token]
            devices.append(stack.enter_context(running(part, out / f"device_{number}.log")))
        printing = threading.Thread(target=print_told, args=(cloud.stdout,))
        printing.start()
        failed = cloud.wait() != 0
        printing.join()
        failed = max(abs(device.wait(STOP_SECONDS)) for device in devices) > 0 or failed
    if failed:
        say("demo", f"has failed: read the logs in {out}")
    return int(failed)


def build(out: Path) -> None:
    """Builds a bundle that names the server's key, of a model that is made here."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from bespoke import Federation, Lora, Personalizer, Training
    from bespoke.bundle.signature import public_key_of

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=131, max_position_embeddings=256, **sizes)).save_pretrained(out / "model")
    key = public_key_of((out / "server.pem").read_bytes()).hex()
    Personalizer(
        out / "model",
        "zgr",
        "executorch",
        lora=Lora(rank=4),
        training=Training(sequence_lengths=(LENGTH,), batch_size=2, steps=10),
        licence="apache-2.0",
        data=None,
        text=False,
        federation=Federation(task="demo", server_key=key, clip=1.0, noise=1.0, budget=100.0),
    ).build(out / "together.bundle")
    say("bundle", f"built in {out}, with the public key of the server")


def start_edge(out: Path, stack: ExitStack) -> str:
    """Starts the edge and waits until it listens. Returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = [*COMMAND, "serve", out / "together.bundle", "--key", out / "server.pem", "--state", out / "edge"]
    serve += ["--tls-cert", out / "tls-cert.pem", "--tls-key", out / "tls-key.pem", "--port", str(port)]
    edge = stack.enter_context(running([*serve, "--led", "--retry-seconds", "0"], out / "edge.log", subprocess.DEVNULL))
    ends = time.monotonic() + START_SECONDS
    while edge.poll() is None and time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            say("edge", f"listens at https://localhost:{port}, and is led by the cloud")
            return f"https://localhost:{port}"
    raise SystemExit("the edge does not start")


def take_part(out: Path, name: str, url: str, token: str) -> int:
    """A device: the user's consent, two examples that stay here, and rounds until the task has ended."""
    import numpy as np

    from bespoke import FederationClient, PersonalModel, learn_together
    from bespoke.errors import ServerError

    state = out / name.replace(" ", "_")
    client = FederationClient(url, state.with_suffix(".device"), ca_file=out / "tls-cert.pem")
    with PersonalModel.open(out / "together.bundle", state) as model:
        random = np.random.default_rng(int(name.split()[-1]))
        for number in range(2):
            tokens = random.integers(3, 130, 12).tolist()
            model.examples.add({"tokens": tokens, "mask": [0, *[1] * 11]}, id=str(number), use="train")
        model.federation.join()
        client.enrol(token)
        say(name, "has joined, and was let in")
        done = False
        while not done:
            try:
                learned = learn_together(model, client)
            except ServerError as error:
                time.sleep(max(ASK_SECONDS, error.retry_seconds))
                continue
            done = learned.done
            for number in learned.measured:
                say(name, f"measured round {number} on its examples and sent one number, with noise")
            if learned.followed:
                say(name, f"took the step of round {learned.round}")
            time.sleep(ASK_SECONDS)
        status, sent = model.federation.status(), client.key.traffic().bytes_sent
        say(name, f"is done: {status.rounds_sent} numbers in {sent} bytes, {status.spent:g} of its budget spent")
    return 0


@contextmanager
def running(command: list[object], log: Path, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that is stopped at the end. Its errors go into a log."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with log.open("w") as errors:
        arguments = list(map(str, command))
        process = subprocess.Popen(arguments, stdout=stdout, stderr=errors, text=True, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def print_told(lines: IO[str] | None) -> None:
    """Prints what the cloud tells, without Flower's own lines."""
    for line in lines or ():
        if line.startswith(TOLD):
            say("cloud", line.rstrip())


def say(who: str, what: str) -> None:
    print(f"{who:8}  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
