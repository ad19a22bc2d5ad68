"""The floor with a codec: requests are encoded from arguments, replies decoded to values.

The plainest fast Python for one connection and one thread: no session, no check of an argument, no
error but an assertion, nobody else's replies.  What a client costs above it is what it does more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from socket import MSG_DONTWAIT
from struct import Struct
from typing import Any

from benchmarks import decoding
from benchmarks.candidate import Arguments, Candidate
from benchmarks.floor import Floor
from benchmarks.jobs import Job, Outcome
from benchmarks.measure import NotOffered
from benchmarks.wire import CHUNK, OPCODES, OPEN_ACL

HEAD = Struct(">iiii")  # length, xid, opcode, length of the path
LENGTH = Struct(">i")
REPLY = Struct(">iiqi")  # length, xid, zxid, error
STAT = Struct(">qqqqiiiqiiq")
ANY_VERSION = LENGTH.pack(-1)
PERSISTENT_NODE = OPEN_ACL + LENGTH.pack(0)


def encode_read(xid: int, opcode: int, path: str) -> bytes:
    """get, exists, children."""
    name = path.encode()
    size = len(name)
    return b"%b%b\0" % (HEAD.pack(13 + size, xid, opcode, size), name)


def encode_delete(xid: int, opcode: int, path: str) -> bytes:
    name = path.encode()
    size = len(name)
    return b"%b%b%b" % (HEAD.pack(16 + size, xid, opcode, size), name, ANY_VERSION)


def encode_set(xid: int, opcode: int, path: str, data: bytes, tail: bytes = ANY_VERSION) -> bytes:
    name = path.encode()
    size, length = len(name), len(data)
    head = HEAD.pack(16 + size + length + len(tail), xid, opcode, size)
    return b"".join((head, name, LENGTH.pack(length), data, tail))


def encode_create(xid: int, opcode: int, path: str, data: bytes) -> bytes:
    return encode_set(xid, opcode, path, data, PERSISTENT_NODE)


def decode_data(reply: bytes, start: int) -> tuple[bytes, tuple[int, ...]]:
    (length,) = LENGTH.unpack_from(reply, start)
    start += 4
    end = start + length
    return reply[start:end], STAT.unpack_from(reply, end)


def decode_stat(reply: bytes, start: int) -> tuple[int, ...]:
    return STAT.unpack_from(reply, start)


def decode_path(reply: bytes, start: int) -> str:
    (length,) = LENGTH.unpack_from(reply, start)
    start += 4
    return reply[start : start + length].decode()


def decode_nothing(reply: bytes, start: int) -> None:
    return None


def decode_names(reply: bytes, start: int) -> list[str]:
    unpack = LENGTH.unpack_from
    (count,) = unpack(reply, start)
    names = []
    start += 4
    for _ in range(count):
        (length,) = unpack(reply, start)
        start += 4
        end = start + length
        names.append(reply[start:end].decode())
        start = end
    return names


ENCODERS: dict[str, Callable[..., bytes]] = {
    "create": encode_create,
    "set": encode_set,
    "delete": encode_delete,
    "get": encode_read,
    "exists": encode_read,
    "children": encode_read,
}
DECODERS: dict[str, Callable[[bytes, int], Any]] = {
    "create": decode_path,
    "set": decode_stat,
    "delete": decode_nothing,
    "get": decode_data,
    "exists": decode_stat,
    "children": decode_names,
}


class CodecFloor(Floor):
    """See the module's docstring."""

    def opened(self) -> Callable[[], None]:
        raise NotOffered  # the same as the floor's

    def specials(self) -> dict[str, Callable[[Job], Outcome]]:
        return decoding.specials(lambda: (decode_stat, decode_data, decode_names))

    def arguments(self, verb: str, paths: Sequence[str], data: bytes) -> Arguments:
        return Candidate.arguments(self, verb, paths, data)

    def one(self, verb: str) -> Callable[..., object]:
        sock = self.connection.socket
        send, receive, rest = sock.sendall, sock.recv, self._rest
        encode, decode, opcode = ENCODERS[verb], DECODERS[verb], OPCODES[verb]
        header = REPLY.unpack_from
        xid = 0

        def one(path: str, *data: bytes) -> Any:
            nonlocal xid
            xid += 1
            send(encode(xid, opcode, path, *data))
            reply = receive(CHUNK)
            if len(reply) < 20:  # a server may send the length by itself
                reply = rest(reply, 20)
            length, answered, _, error = header(reply, 0)
            if length + 4 != len(reply):
                reply = rest(reply, length + 4)
            if answered != xid or error:
                raise OSError(f"error {error} for {answered}")
            return decode(reply, 20)

        return one

    def _rest(self, reply: bytes, length: int) -> bytes:
        return reply + self.connection.read(length - len(reply))

    def many(self, verb: str, window: Arguments) -> None:
        encode, opcode = ENCODERS[verb], OPCODES[verb]
        frames = [encode(xid, opcode, *each) for xid, each in enumerate(window)]
        results = self._exchange(b"".join(frames), DECODERS[verb], len(window))
        assert len(results) == len(window)

    def _exchange(self, data: bytes, decode: Callable[[bytes, int], Any], count: int) -> list[Any]:
        header, sock = REPLY.unpack_from, self.connection.socket
        rest = memoryview(data)
        results: list[Any] = []
        tail = b""
        while len(results) < count:
            while rest:
                try:
                    rest = rest[sock.send(rest[:CHUNK], MSG_DONTWAIT) :]
                except BlockingIOError:
                    break  # the server waits until it is read from
            chunk = tail + sock.recv(CHUNK)
            start, end = 0, len(chunk)
            while end - start >= 20:
                length, xid, _, error = header(chunk, start)
                if end - start < length + 4:
                    break
                if xid != len(results) or error:
                    raise OSError(f"error {error} for {xid}")
                results.append(decode(chunk, start + 20))
                start += length + 4
            tail = chunk[start:]
        return results
