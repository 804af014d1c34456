# SPDX-License-Identifier: Apache-2.0
"""The ClientApp of an edge. It runs on the edge's machine. `edge` of its node's configuration is the folder of the edge's state.

flower-supernode --superlink CLOUD:9093 --node-config 'edge="/var/lib/bespoke/edge"' --root-certificates ca.pem
"""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bespoke.errors import BespokeError, ConfigError, ServerError
from bespoke_federated.flower.messages import order_of, packed
from bespoke_federated.led.documents import Order, Refusal, Standing
from bespoke_federated.led.socket import told

__all__ = ["app", "state_of"]

LOOK_SECONDS = 0.2  # between two looks at what came

app = ClientApp()


@app.query()
def obey(message: Message, context: Context) -> Message:
    """Hands an order to the edge, and waits for numbers as long as the order says."""
    try:
        answer = told_and_waited(state_of(context), order_of(message.content))
    except BespokeError as error:
        answer = Refusal(object=error.subject, got=error.got, expected=error.expected, next_step=error.next_step)
    return Message(packed(answer), reply_to=message)


def told_and_waited(state: Path, order: Order) -> Standing | Refusal:
    """The edge's answer once its share is closed, or the last one when the wait is over. It waits for an edge that restarts."""
    ends = time.monotonic() + order.wait_seconds
    while True:
        left = ends - time.monotonic()
        try:
            answer = told(state, order)
        except ServerError:
            if left <= 0:
                raise
        else:
            waits = isinstance(answer, Standing) and answer.collected is not None and not answer.collected.closed
            if left <= 0 or not waits:
                return answer
            order = order.model_copy(update={"ended": (), "files": ()})  # it has followed and kept them
        time.sleep(min(LOOK_SECONDS, max(0.0, left)))


def state_of(context: Context) -> Path:
    """The state folder of the edge of a node. Raises ConfigError where its configuration has none."""
    state = context.node_config.get("edge")
    if not isinstance(state, str):
        raise ConfigError(
            "--node-config",
            got="no edge",
            expected="the folder of the edge's state",
            next_step="""Start the SuperNode with --node-config 'edge="FOLDER"'""",
        )
    return Path(state)
