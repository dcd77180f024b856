"""A client's worker: Flower's SuperExec, which runs the client's app in its own process.

Flower starts a process for every message. Each would import JAX, load compiled programs and read the data again,
which takes seconds. This process keeps them in memory. It may be killed at any time: what a round needs is on the
client's disk, and `fova client` starts another worker. Run as `python -m fova.network.worker`, with the arguments
of `flower-superexec`.
"""

import os
import time
from logging import ERROR
from typing import Any

from flwr.app import Context, Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fova.network.client import app, forget
from fova.network.pace import Pace

# How often the worker asks its SuperNode for a message. The SuperExec itself adds a hundredth of a second.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
POLL_INTERVAL = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.01"}


class InThisProcess:
    """An executor for Flower's SuperExec that runs the client's app here, one message at a time."""

    def __init__(self) -> None:
        self.pace = Pace(SHORTEST_PAUSE, LONGEST_PAUSE)

    def get_eligible_capacity(self, supported: set[TaskType], **_: Any) -> tuple[set[TaskType], set[str]]:
        """Messages for clients only."""
        return supported & {TaskType.CLIENT_APP}, set()

    def wait_for_capacity(self, *_: Any, **__: Any) -> None:
        """There is always room: messages come one by one."""

    def reconcile(self) -> None:
        """Called before every request for a task."""
        time.sleep(self.pace.next())

    def close(self) -> None:
        """There is nothing to release."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Answer the message that a task stands for."""
        self.pace.restart()
        connection = RuntimeHttpClient.from_server_address(
            server_address=spec.runtime_api_address,
            insecure=spec.insecure,
            root_certificates=None,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(spec.token),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        )
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(connection))
        heartbeat.start()  # without it, the SuperNode would think that a long training has died
        try:
            message, context, _, _ = pull_task_input(connection)
            push_message(connection, answer(message, context), context)
            push_task_output(connection, context, SubStatus.COMPLETED, "")
        except Exception as error:  # noqa: BLE001  about this message; the next one may be well
            log(ERROR, "A message could not be answered", exc_info=error)
            return LaunchResult.failed(str(error))
        finally:
            heartbeat.stop()
            connection.close()
        return LaunchResult.accepted()


def answer(message: Message, context: Context) -> Message:
    """The app's reply. Whatever it raises becomes an error reply, and nothing of it is kept in memory."""
    try:
        return app(message, context)
    except Exception as error:  # noqa: BLE001  as Flower itself does
        forget()
        log(ERROR, "The client's app raised an exception", exc_info=error)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>"), reply_to=message)


def main() -> None:
    from flwr.supercore.cli.flower_superexec import flower_superexec
    from flwr.supercore.superexec import run_superexec

    from fova.network.processes import end_with_parent

    os.environ |= POLL_INTERVAL
    run_superexec.get_executor = lambda *_, **__: InThisProcess()  # type: ignore[assignment]
    end_with_parent()
    flower_superexec()


if __name__ == "__main__":
    main()
