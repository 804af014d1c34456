# SPDX-License-Identifier: Apache-2.0
"""The ServerApp of a cloud: it leads until the task has ended, and says what that costs a device.

Its configuration is in app/pyproject.toml. `flwr run` takes other values. A run that ended early is continued by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from flwr.app import Context, Message
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid, ServerApp
from pydantic import ValidationError

from bespoke.bundle.reader import read_bundle
from bespoke.errors import ConfigError
from bespoke_federated.cloud.cloud import Cloud
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.flower.accountant import spent
from bespoke_federated.flower.messages import answer_of, packed
from bespoke_federated.led.documents import Order, Refusal, Standing

__all__ = ["app"]

ANSWER_SECONDS = 60.0  # for an app to start and to answer, besides the wait that its order names
LOOK_SECONDS = 0.2
_log = logging.getLogger("bespoke_federated")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Leads the edges of all connected nodes."""
    config = context.run_config
    with read_bundle(_folder(config, "bundle")) as bundle:
        settings = settings_of(config)
        with Cloud(bundle, _folder(config, "state"), settings, tell=_tell) as cloud:
            cloud.run(FlowerCarrier(grid))
            _tell(spent(cloud.federation.noise, cloud.store.most_rounds()))


class FlowerCarrier:
    """Carries orders as Flower's messages, and answers as replies to them."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def carry(self, orders: Mapping[int, Order]) -> Mapping[int, Standing | Refusal]:
        seconds = ANSWER_SECONDS + max(order.wait_seconds for order in orders.values())
        messages = [Message(packed(order), node, "query", ttl=seconds) for node, order in orders.items()]
        answers: dict[int, Standing | Refusal] = {}
        for reply in self._grid.send_and_receive(messages, timeout=seconds):
            if reply.has_error():
                _log.info("node %d: %s", reply.metadata.src_node_id, reply.error.reason)
                continue
            try:
                answers[reply.metadata.src_node_id] = answer_of(reply.content)
            except (KeyError, ValidationError):
                _log.warning("node %d answers what is no answer", reply.metadata.src_node_id)
        return answers


def settings_of(config: UserConfig) -> CloudSettings:
    """The cloud's settings from a run's configuration, whose names have hyphens."""
    given = {name.replace("-", "_"): value for name, value in config.items()}
    return CloudSettings(**{name: given[name] for name in CloudSettings.model_fields if name in given})


def _folder(config: UserConfig, name: str) -> Path:
    folder = config.get(name)
    if not isinstance(folder, str) or not folder:
        raise ConfigError(
            f"--run-config {name}",
            got="none",
            expected="a path on the machine of the ServerApp",
            next_step=f"""Run with --run-config '{name}="PATH"'""",
        )
    return Path(folder)


def _tell(line: str) -> None:
    """Prints a line, which Flower passes on to `flwr run --stream`."""
    print(line, flush=True)
