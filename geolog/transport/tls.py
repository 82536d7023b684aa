"""TLS over connections of the transport seam, with certificates on both sides.

A server may take connections with and without TLS on one port: those with TLS begin with a
handshake record, whose first byte no other protocol here begins with.

Rules: PROTOCOL B1.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from geolog.transport.seam import (
    Address,
    ByteStream,
    ConnectionFailedError,
    Listener,
    Transport,
)
from geolog.transport.trio_stream import TrioStream
from topology.errors import InvalidConfigError

HANDSHAKE_S = 10.0
"""Time limit of a handshake."""

_HANDSHAKE_RECORD = 0x16

Buffer = bytes | bytearray | memoryview


@attrs.frozen
class TlsIdentity:
    """A process's certificate, and the authority that the other side's must be of."""

    client: ssl.SSLContext
    server: ssl.SSLContext

    @classmethod
    def load(cls, *, certificate: Path, key: Path, authority: Path) -> "TlsIdentity":
        """Read PEM files. InvalidConfigError names the one that is wrong.

        authority: certificates of those whose signature is trusted.
        """
        for path in (certificate, key, authority):
            if not path.is_file():
                raise InvalidConfigError(f"{path} is not a file: give a PEM file")
        contexts = []
        for purpose in (ssl.Purpose.SERVER_AUTH, ssl.Purpose.CLIENT_AUTH):
            try:
                context = ssl.create_default_context(purpose, cafile=authority)
            except (ssl.SSLError, OSError) as error:
                raise InvalidConfigError(
                    f"{authority} has no certificate of an authority in PEM form: {error}"
                ) from error
            try:
                context.load_cert_chain(certificate, key)
            except (ssl.SSLError, OSError) as error:
                raise InvalidConfigError(
                    f"{certificate} and {key} are not a certificate and its key, without a"
                    f" password, in PEM form: {error}"
                ) from error
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
        return cls(*contexts)


class TlsStream:
    """A `ByteStream` over TLS."""

    def __init__(self, stream: ByteStream, inside: trio.SSLStream[TrioStream]) -> None:
        self._stream = stream
        self._inside = inside
        self._has_received = False

    def __repr__(self) -> str:
        return f"TlsStream({self._stream})"

    @property
    def peer(self) -> str:
        """See `ByteStream`."""
        return self._stream.peer

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """See `ByteStream`."""
        try:
            await self._inside.send_all(b"".join(buffers))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ConnectionFailedError:
        if self._has_received:
            return _broken(self.peer, error)
        # With TLS 1.3 a server judges the client's certificate after the handshake.
        return ConnectionFailedError(
            f"{self.peer} ended a TLS connection before it said anything: it may not accept our"
            " certificate"
        )

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:  # noqa: ARG002 - none goes at once.
        """See `ByteStream`: it takes nothing at once."""
        return 0

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """See `ByteStream`."""
        try:
            received = await self._inside.receive_some(len(buffer))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._broken(error) from error
        self._has_received = True
        buffer[: len(received)] = received
        return len(received)

    def close(self) -> None:
        """See `ByteStream`."""
        self._stream.close()


@attrs.frozen
class _Peeked:
    """A connection whose first bytes were read already."""

    stream: ByteStream
    first: bytearray

    @property
    def peer(self) -> str:
        return self.stream.peer

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self.stream.send(buffers)

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        return self.stream.send_nowait(buffers)

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        if not self.first:
            return await self.stream.receive_into(buffer)
        await trio.lowlevel.checkpoint()
        some = self.first[: len(buffer)]
        buffer[: len(some)] = some
        del self.first[: len(some)]
        return len(some)

    def close(self) -> None:
        self.stream.close()


@attrs.frozen
class TlsTransport:
    """A `Transport` whose connections to others are over TLS; it listens without."""

    transport: Transport
    identity: TlsIdentity

    async def connect(self, address: Address) -> ByteStream:
        """Connect; the certificate must be for the host. ConnectionFailedError."""
        stream = await self.transport.connect(address)
        try:
            inside = trio.SSLStream(
                TrioStream(stream), self.identity.client, server_hostname=address.host
            )
            return await _secured(stream, inside)
        except BaseException:
            stream.close()
            raise

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen; see `accepted`."""
        return await self.transport.listen(address, first_bytes_min=first_bytes_min)


async def accepted(stream: ByteStream, identity: TlsIdentity | None) -> tuple[ByteStream, bool]:
    """A connection that was accepted, and whether it is over TLS. ConnectionFailedError.

    Waits for its first byte; the caller bounds that.
    """
    first = bytearray(1)
    if await stream.receive_into(first) == 0:
        raise ConnectionFailedError(f"{stream.peer} connected, and said nothing")
    is_tls = first[0] == _HANDSHAKE_RECORD
    peeked = _Peeked(stream, first)
    if not is_tls:
        return peeked, False
    if identity is None:
        raise ConnectionFailedError(
            f"{stream.peer} wants TLS, and this server has no certificate"
        )
    inside = trio.SSLStream(TrioStream(peeked), identity.server, server_side=True)
    return await _secured(stream, inside), True


async def _secured(stream: ByteStream, inside: trio.SSLStream[TrioStream]) -> TlsStream:
    try:
        with trio.fail_after(HANDSHAKE_S):
            await inside.do_handshake()
    except trio.BrokenResourceError as error:
        raise _broken(stream.peer, error) from error
    except trio.TooSlowError:
        raise ConnectionFailedError(
            f"{stream.peer} did not end a TLS handshake within {HANDSHAKE_S:g} s"
        ) from None
    return TlsStream(stream, inside)


def _broken(peer: str, error: Exception) -> ConnectionFailedError:
    """The error of a TLS connection, with the reason that people understand."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConnectionFailedError(
            f"the certificate of {peer} is not accepted: {cause.verify_message}"
        )
    if isinstance(cause, ssl.SSLEOFError):
        return ConnectionFailedError(
            f"{peer} ended a TLS connection; it may have no certificate, or not accept ours"
        )
    if isinstance(cause, ssl.SSLError) and cause.reason is not None:
        if "ALERT" in cause.reason:
            return ConnectionFailedError(
                f"{peer} does not accept our certificate: {cause.reason}"
            )
        return ConnectionFailedError(f"{peer} does not speak TLS as we do: {cause.reason}")
    return ConnectionFailedError(f"the connection to {peer} broke: {error}")
