"""A Flower grid without a network: messages go through Flower's own byte format to ClientApps in this process."""

from types import SimpleNamespace

from flwr.app import Context, Message, RecordDict
from flwr.app.error import Error
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fova.network.client import app as client_app

NODE_GONE = Error(code=5, reason="node unavailable")


def over_the_wire(message):
    """The message as the other side reads it, and the bytes it was."""
    contents = {name: item.deflate() for name, item in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, dict(contents))
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived, contents


class InProcessGrid(Grid):
    """`nodes`: node id -> node configuration. Tests may change who is connected and tamper with replies."""

    def __init__(self, nodes, registered=None):
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as a ServerApp's process has it
        self.nodes = dict(nodes)
        self.registered = registered or {}  # node id -> name its key was registered with
        self.public_keys = {}  # node id -> its public key, as PEM
        self.silent = set()  # nodes that receive but never answer
        self.tamper = {}  # node id -> function from reply to reply, or to a list of replies
        self.log = []  # every message in both directions: (direction, node, message)
        self.bytes = []  # everything that went over the wire from clients
        self.replies = {}  # message id -> replies, or the error that fetching them raises

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        return None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            self.replies[message.object_id] = self._replies(message)
        return [message.object_id for message in messages]

    def pull_messages(self, message_ids):
        found = [self.replies.pop(number) for number in message_ids if self.replies.get(number)]
        for replies in found:
            if isinstance(replies, Exception):
                raise replies
        return [reply for replies in found for reply in replies]

    def get_node_ids(self):
        return list(self.nodes)

    def get_nodes(self):
        return [
            SimpleNamespace(
                node_id=node, name=self.registered.get(node, ""), public_key=self.public_keys.get(node, b"")
            )
            for node in self.nodes
        ]

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def _replies(self, message):
        node = message.metadata.dst_node_id
        question, _ = over_the_wire(message)
        self.log.append(("down", node, question))
        if node not in self.nodes:
            gone = Message(NODE_GONE, reply_to=question)
            gone.metadata.__dict__["_src_node_id"] = 1  # the SuperLink itself says so
            return [gone]
        reply = self._run(question, Context(1, node, self.nodes[node], RecordDict(), {}))
        if node in self.silent:
            return []
        answers = self.tamper.get(node, lambda reply: reply)(reply)
        replies = []
        for answer in answers if isinstance(answers, list) else [answers]:
            try:
                arrived, contents = over_the_wire(answer)
            except Exception as error:  # noqa: BLE001  as Flower fails when it puts a message together
                return error
            self.bytes += contents.values()
            self.log.append(("up", node, arrived))
            replies.append(arrived)
        return replies

    def _run(self, question, context):
        """Flower turns whatever a ClientApp raises into an error reply."""
        try:
            return client_app(question, context)
        except Exception as error:  # noqa: BLE001
            return Message(Error(code=2, reason=str(error)), reply_to=question)
