"""Members that answer without training, one of which lies: a server can be tried a thousand times."""

import jax
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from in_process import InProcessGrid

from fova.algorithms.base import Submission
from fova.federation.statistics import ClientStatistics
from fova.network import messages, secure_identity, secure_messages
from fova.network.secure_session import ClientSession

NAMES = ("east", "north", "south", "west")
LIAR = "south"
NODES = {100 + i: {"name": name} for i, name in enumerate(NAMES)}
LIARS_NODE = next(node for node, about in NODES.items() if about["name"] == LIAR)


class Member:
    """Answers every question with an update of zeros."""

    def __init__(self, name, plan):
        self.name, self.plan, self.session = name, plan, None
        self.key = ec.generate_private_key(ec.SECP384R1())
        like = plan.submission_like()
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
        self.sent = Submission(zeros.parameters, np.float32(0.0), dict.fromkeys(like.metrics, np.float32(1.0)))

    def answer(self, question):
        content = question.content
        if question.metadata.message_type == messages.ROUND:
            return self._round(content)
        if not secure_messages.step_of(content):
            told = ClientStatistics(10, 1, 1, 10.0, 10.0, 0.0, 10.0) if self.plan.gathers_statistics else None
            return messages.hello_answer(self.plan, self.name, told)
        return self._secure(content, secure_messages.step_of(content))

    def _round(self, content):
        about = content.config_records["about"]
        if not self.plan.secure:
            return messages.round_answer(self.plan, int(about["round"]), self.name, self.sent)
        from fova.network.secure_payload import Payload

        session, sealed = secure_messages.read_masked_question(content, 99)
        payload = Payload(self.plan.submission_like(), self.plan.run.aggregation)
        broadcast = self.sent.parameters  # its update is the broadcast minus the broadcast
        hidden = self.session.mask(payload.encode(self.sent, broadcast, len(NAMES)), sealed)
        return secure_messages.masked_answer(self.plan, session, self.name, hidden)

    def _secure(self, content, step):
        session, number = secure_messages.session_of(content)
        if step == secure_messages.KEYS:
            self.session = ClientSession.start(session, number, self.name)
            keys = self.session.announce()
            said = secure_identity.statement(self.plan.run_id, session, number, self.name, keys)
            keys = keys._replace(signature=sign_message(self.key, said))
            return secure_messages.keys_answer(self.plan, session, self.name, keys)
        if step == secure_messages.SHARES:
            shared = self.session.share(secure_messages.read_shares_question(content, 99))
            return secure_messages.shares_answer(self.plan, session, self.name, shared)
        revealed = self.session.reveal(secure_messages.read_unmask_question(content, 99))
        return secure_messages.unmask_answer(self.plan, session, self.name, revealed)


class Hall(InProcessGrid):
    """A grid of such members. `lie(number, stage, content)` is what the liar answers in a round, at a stage."""

    def __init__(self, plan, lie=lambda number, stage, content: content):
        super().__init__(NODES, {node: about["name"] for node, about in NODES.items()})
        self.members = {node: Member(about["name"], plan) for node, about in NODES.items()}
        self.public_keys = {node: public_key_to_bytes(m.key.public_key()) for node, m in self.members.items()}
        self.lie = lie

    def _run(self, question, context):
        content = self.members[context.node_id].answer(question)
        if context.node_id == LIARS_NODE:
            number = question.content["about"].get("round", 0)
            content = self.lie(number, stage_of(question), content)
        self.log.clear()  # a thousand rounds are not kept
        self.bytes.clear()
        return Message(content, reply_to=question)


def stage_of(question):
    if question.metadata.message_type == messages.ROUND:
        return "round"
    return secure_messages.step_of(question.content) or "hello"


# --- What a member may send instead ---

TEXTS = ("", " ", "../../x", "\x1b[31mred", "a\nb", "x" * 5000, "east", "é" * 70)
VALUES = (*TEXTS, 0, -1, 2**60, 0.5, float("nan"), float("inf"), True, b"", b"\x00" * 9000, [], [1, 2], ["a"] * 300)


def hostile(stage, content, random):
    """An answer that no honest member gives, made of an honest one."""
    changes = [_about, _no_record, _another_record]
    changes += [_field] if _payload(content, ConfigRecord) else []
    changes += [_list] if any(isinstance(v, list) for v in _payload(content, ConfigRecord).values()) else []
    changes += [_keys] * 2 if stage == secure_messages.KEYS else []
    changes += [_array] * 3 if _payload(content, ArrayRecord) else []
    changes += [_metric] * 2 if "metrics" in content else []
    return random.choice(changes)(content, random)


def _payload(content, kind):
    """The record of this kind beside `about`; empty if there is none."""
    return next((record for name, record in content.items() if name != "about" and isinstance(record, kind)), {})


def _other(value, random):
    """Something that is not `value`."""
    return random.choice([other for other in VALUES if type(other) is not type(value) or other != value])


def _about(content, random):
    about = content["about"]
    name = random.choice(sorted(about))
    if random.random() < 0.3:
        del about[name]
    else:
        about[name] = _other(about[name], random)
    return content


def _no_record(content, random):
    del content[random.choice(sorted(content))]
    return content


def _another_record(content, random):
    kind = random.choice([ConfigRecord, MetricRecord, ArrayRecord])
    content[random.choice(TEXTS) + "!"] = kind()
    return content


def _field(content, random):
    record = _payload(content, ConfigRecord)
    name = random.choice(sorted(record))
    if random.random() < 0.2:
        del record[name]
    else:
        record[name] = _other(record[name], random)
    return content


def _list(content, random):
    record = _payload(content, ConfigRecord)
    name = random.choice(sorted(name for name, value in record.items() if isinstance(value, list)))
    values = list(record[name])
    match random.randrange(3):
        case 0:
            values.append(values[0])
        case 1:
            values.pop()
        case _:
            values = [b"" if name == "names" else "text"] * len(values)
    record[name] = values
    return content


def _keys(content, random):
    record, other = content["keys"], ec.generate_private_key(ec.SECP384R1()).public_key()
    strange = [
        ec.generate_private_key(ec.SECP256R1()).public_key(),
        ed25519.Ed25519PrivateKey.generate().public_key(),
    ]
    name = random.choice(["mask", "seal"])
    record[name] = random.choice(
        [
            record["seal" if name == "mask" else "mask"],  # one key for both
            _pem(other),  # a sound key that it did not sign
            _pem(random.choice(strange)),
            _pem(other)[:-30],
            bytes(random.randrange(256) for _ in range(random.randrange(200))),
        ]
    )
    return content


def _pem(key):
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _array(content, random):
    record = _payload(content, ArrayRecord)
    name = random.choice(sorted(record))
    honest = record[name]
    match random.randrange(6):
        case 0:
            record[name + random.choice(TEXTS) + "!"] = honest
        case 1:
            del record[name]
        case 2:
            record[name] = Array(
                honest.dtype, honest.shape, random.choice(["torch.Tensor", "", "\x00"]), honest.data
            )
        case 3:
            record[name] = Array(
                np.zeros(random.choice([(0,), (7, 7), (1, 1, 1)]), random.choice(["f2", "i8", "S3"]))
            )
        case 4:
            junk = bytes(random.randrange(256) for _ in range(random.randrange(60)))
            record[name] = Array(honest.dtype, honest.shape, honest.stype, junk)
        case _:
            cut = random.randrange(1, 100)
            record[name] = Array(honest.dtype, honest.shape, honest.stype, honest.data[:-cut])
    return content


def _metric(content, random):
    record = content["metrics"]
    name = random.choice(sorted(record))
    match random.randrange(3):
        case 0:
            record[name] = random.choice([float("nan"), float("inf"), 1e300, [1.0], [], 2**62 * 1.0e20])
        case 1:
            del record[name]
        case _:
            record[random.choice(TEXTS) + "!"] = 1.0
    return content
