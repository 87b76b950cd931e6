"""A conversation with a node on the wire, for requests that no client library sends, or not that
patiently."""

import socket
import struct
from typing import Any

from runtime.config.config import Address
from tests.cluster.scenery import STEP_S
from wire.apis import APIS, Request, decode_response, encode_request


class Conversation:
    """One connection to one node, a frame each way at a time."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=STEP_S)
        self._number = 0

    def ask(self, request: Request, version: int) -> Any:
        self._number += 1
        self._socket.sendall(b"".join(encode_request(request, version, self._number, "raw")))
        (size,) = struct.unpack(">i", self._exactly(4))
        key = next(api.key for api in APIS.values() if api.request is type(request))
        return decode_response(key, version, memoryview(self._exactly(size)))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the node closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()
