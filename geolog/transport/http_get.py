"""One GET of a JSON document over the transport seam, for the HTTP ports of our own servers."""

import json

import h11

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport
from topology.errors import UnavailableError

_RECEIVE_BYTES = 16 << 10
_BODY_BYTES_MAX = 1 << 20
_OK = 200


async def http_get(transport: Transport, address: Address, target: str) -> object:
    """Get the document at this path; the caller bounds the time.

    UnavailableError: nobody answers there, or with anything but a document of at most 1 MiB.
    """
    stream = await transport.connect(address)
    try:
        return json.loads(await _body(stream, address, target))
    except (h11.ProtocolError, ValueError) as error:
        raise UnavailableError(f"{address}{target} is no document: {error}") from error
    finally:
        stream.close()


async def _body(stream: ByteStream, address: Address, target: str) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    headers = [("host", str(address)), ("connection", "close")]
    request = connection.send(h11.Request(method="GET", target=target, headers=headers))
    await stream.send([request + connection.send(h11.EndOfMessage())])
    body, buffer = bytearray(), bytearray(_RECEIVE_BYTES)
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                count = await stream.receive_into(buffer)
                connection.receive_data(bytes(buffer[:count]))
            case h11.Response(status_code=status) if status != _OK:
                raise UnavailableError(f"{address}{target} answers with status {status}")
            case h11.Data(data=data):
                body += data
                if len(body) > _BODY_BYTES_MAX:
                    raise UnavailableError(f"{address}{target} is too large")
            case h11.EndOfMessage():
                return bytes(body)
            case h11.ConnectionClosed():
                raise ConnectionFailedError(f"{address} closed the connection")
