"""A log that spans regions: what is acknowledged outlives the loss of a whole region.

The public names are imported when first used (`__init__.pyi` lists them for readers and
type checkers): a server or the command's help need not wait for what they do not use.
"""

import logging
from importlib import import_module
from pathlib import Path

from geolog.siblings import check_siblings

check_siblings(Path(__file__).parent.parent)

# Without any handler Python would print our warnings on the application's stderr. Add a handler
# to read them: they still propagate to the root logger.
logging.getLogger(__name__).addHandler(logging.NullHandler())

_HOMES = {
    "geolog.catalog.cursors": ("CursorHeldError", "CursorLostError", "NoSuchCursorError"),
    "geolog.catalog.stream_catalog": ("StreamExistsError",),
    "geolog.client.cursors.cursors": ("CursorDescription",),
    "geolog.client.reading.bounds": (
        "EARLIEST",
        "LATEST",
        "AtDlsn",
        "AtSequence",
        "AtTime",
        "AtTransaction",
        "Bound",
        "LastRecords",
    ),
    "geolog.client.connect": ("connect",),
    "geolog.client.log": ("Log", "LogConfig"),
    "geolog.client.reading.reader": ("ReadTrimmedError", "Reader"),
    "geolog.client.reading.record": ("Gap", "GapReason", "Record", "RecordBatch"),
    "geolog.client.spooling.spool_facts": (
        "SpoolDamagedError",
        "SpoolInUseError",
        "SpoolMismatchError",
        "SpoolSeqsTakenError",
        "SpoolWriteError",
    ),
    "geolog.client.standing": ("NoSuchRegionError",),
    "geolog.client.writing.writer": ("Writer",),
    "geolog.client.writing.writer_pending": ("AckLevel", "Pending", "Receipt"),
    "geolog.metadata.clusters": ("NoSuchClusterError",),
    "geolog.partition.repeated_batch": ("ForgottenSeqError", "RepeatUnreadError"),
    "geolog.ledger.replicas.hedging": ("ReadStatistics",),
    "geolog.protocol.hedge_policy": ("HedgeMoment", "HedgePolicy", "HedgeTerms"),
    "geolog.protocol.ids": ("DLSN", "Position"),
    "topology.location": ("Location",),
    "topology.membership": ("KnownNode",),
    "topology.own_policy": ("OwnPlacement", "PolicyFailedError", "Ring", "UnknownPolicyError"),
    "topology.quorum": ("QuorumConfig",),
    "topology.ring.window_rule": ("Adherence",),
    "topology.errors": (
        "ClosedError",
        "ConflictError",
        "DamagedBytesError",
        "DataLostError",
        "FencedError",
        "GeologError",
        "InvalidArgumentError",
        "InvalidConfigError",
        "NoSuchStreamError",
        "NotEnoughNodesError",
        "NotFoundError",
        "NotPermittedError",
        "SealedError",
        "TrimmedError",
        "OutcomeUnknownError",
        "OverCapacityError",
        "RegionUnavailableError",
        "TooLargeError",
        "UnavailableError",
    ),
}
_SURFACES = ("aio", "blocking")
"""The same log for programs that do not run under trio."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, *_SURFACES])


def __getattr__(name: str) -> object:
    if name in _SURFACES:
        return import_module(f"geolog.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'geolog' has no attribute {name!r}")
    found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
