"""Stdout whose failures say that it was stdout: the disk behind it may be full."""

import io
from typing import ClassVar, TextIO


class StandardOutput(io.FileIO):
    """The file that stdout is. An error of a write names no file by itself."""

    SHOWN: ClassVar[str] = "stdout"

    def __init__(self, before: io.TextIOWrapper) -> None:
        super().__init__(before.fileno(), "wb", closefd=False)
        self._before = before  # Were it collected it would close the descriptor.

    def write(self, data: "bytes | bytearray | memoryview", /) -> int | None:  # type: ignore[override]
        """Write some of the bytes."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.SHOWN
            raise


def named_stdout(stdout: TextIO) -> TextIO:
    """The same stdout, with its errors named; what is no file is left as it is."""
    if not isinstance(stdout, io.TextIOWrapper):
        return stdout
    stdout.flush()
    file = StandardOutput(stdout)
    return io.TextIOWrapper(
        io.BufferedWriter(file),  # type: ignore[type-var]  # It takes what any file takes.
        encoding=stdout.encoding,
        errors=stdout.errors,
        line_buffering=stdout.line_buffering,
        write_through=stdout.write_through,
    )
