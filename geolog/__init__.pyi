import geolog.aio as aio
import geolog.blocking as blocking
from geolog.catalog.cursors import CursorHeldError as CursorHeldError
from geolog.catalog.cursors import CursorLostError as CursorLostError
from geolog.catalog.cursors import NoSuchCursorError as NoSuchCursorError
from geolog.catalog.stream_catalog import StreamExistsError as StreamExistsError
from geolog.client.connect import connect as connect
from geolog.client.cursors.cursors import CursorDescription as CursorDescription
from geolog.client.log import Log as Log
from geolog.client.log import LogConfig as LogConfig
from geolog.client.reading.bounds import EARLIEST as EARLIEST
from geolog.client.reading.bounds import LATEST as LATEST
from geolog.client.reading.bounds import AtDlsn as AtDlsn
from geolog.client.reading.bounds import AtSequence as AtSequence
from geolog.client.reading.bounds import AtTime as AtTime
from geolog.client.reading.bounds import AtTransaction as AtTransaction
from geolog.client.reading.bounds import Bound as Bound
from geolog.client.reading.bounds import LastRecords as LastRecords
from geolog.client.reading.reader import Reader as Reader
from geolog.client.reading.reader import ReadTrimmedError as ReadTrimmedError
from geolog.client.reading.record import Gap as Gap
from geolog.client.reading.record import GapReason as GapReason
from geolog.client.reading.record import Record as Record
from geolog.client.reading.record import RecordBatch as RecordBatch
from geolog.client.spooling.spool_facts import SpoolDamagedError as SpoolDamagedError
from geolog.client.spooling.spool_facts import SpoolInUseError as SpoolInUseError
from geolog.client.spooling.spool_facts import SpoolMismatchError as SpoolMismatchError
from geolog.client.spooling.spool_facts import SpoolSeqsTakenError as SpoolSeqsTakenError
from geolog.client.spooling.spool_facts import SpoolWriteError as SpoolWriteError
from geolog.client.standing import NoSuchRegionError as NoSuchRegionError
from geolog.client.writing.writer import Writer as Writer
from geolog.client.writing.writer_pending import AckLevel as AckLevel
from geolog.client.writing.writer_pending import Pending as Pending
from geolog.client.writing.writer_pending import Receipt as Receipt
from geolog.ledger.replicas.hedging import ReadStatistics as ReadStatistics
from geolog.metadata.clusters import NoSuchClusterError as NoSuchClusterError
from geolog.partition.repeated_batch import ForgottenSeqError as ForgottenSeqError
from geolog.partition.repeated_batch import RepeatUnreadError as RepeatUnreadError
from geolog.protocol.hedge_policy import HedgeMoment as HedgeMoment
from geolog.protocol.hedge_policy import HedgePolicy as HedgePolicy
from geolog.protocol.hedge_policy import HedgeTerms as HedgeTerms
from geolog.protocol.ids import DLSN as DLSN
from geolog.protocol.ids import Position as Position
from topology.errors import ClosedError as ClosedError
from topology.errors import ConflictError as ConflictError
from topology.errors import DamagedBytesError as DamagedBytesError
from topology.errors import DataLostError as DataLostError
from topology.errors import FencedError as FencedError
from topology.errors import GeologError as GeologError
from topology.errors import InvalidArgumentError as InvalidArgumentError
from topology.errors import InvalidConfigError as InvalidConfigError
from topology.errors import NoSuchStreamError as NoSuchStreamError
from topology.errors import NotEnoughNodesError as NotEnoughNodesError
from topology.errors import NotFoundError as NotFoundError
from topology.errors import NotPermittedError as NotPermittedError
from topology.errors import OutcomeUnknownError as OutcomeUnknownError
from topology.errors import OverCapacityError as OverCapacityError
from topology.errors import RegionUnavailableError as RegionUnavailableError
from topology.errors import SealedError as SealedError
from topology.errors import TooLargeError as TooLargeError
from topology.errors import TrimmedError as TrimmedError
from topology.errors import UnavailableError as UnavailableError
from topology.location import Location as Location
from topology.membership import KnownNode as KnownNode
from topology.own_policy import OwnPlacement as OwnPlacement
from topology.own_policy import PolicyFailedError as PolicyFailedError
from topology.own_policy import Ring as Ring
from topology.own_policy import UnknownPolicyError as UnknownPolicyError
from topology.quorum import QuorumConfig as QuorumConfig
from topology.ring.window_rule import Adherence as Adherence

__all__ = [
    "DLSN",
    "EARLIEST",
    "LATEST",
    "AckLevel",
    "Adherence",
    "AtDlsn",
    "AtSequence",
    "AtTime",
    "AtTransaction",
    "Bound",
    "ClosedError",
    "ConflictError",
    "CursorDescription",
    "CursorHeldError",
    "CursorLostError",
    "DamagedBytesError",
    "DataLostError",
    "FencedError",
    "ForgottenSeqError",
    "Gap",
    "GapReason",
    "GeologError",
    "HedgeMoment",
    "HedgePolicy",
    "HedgeTerms",
    "InvalidArgumentError",
    "InvalidConfigError",
    "KnownNode",
    "LastRecords",
    "Location",
    "Log",
    "LogConfig",
    "NoSuchClusterError",
    "NoSuchCursorError",
    "NoSuchRegionError",
    "NoSuchStreamError",
    "NotEnoughNodesError",
    "NotFoundError",
    "NotPermittedError",
    "OutcomeUnknownError",
    "OverCapacityError",
    "OwnPlacement",
    "Pending",
    "PolicyFailedError",
    "Position",
    "QuorumConfig",
    "ReadStatistics",
    "ReadTrimmedError",
    "Reader",
    "Receipt",
    "Record",
    "RecordBatch",
    "RegionUnavailableError",
    "RepeatUnreadError",
    "Ring",
    "SealedError",
    "SpoolDamagedError",
    "SpoolInUseError",
    "SpoolMismatchError",
    "SpoolSeqsTakenError",
    "SpoolWriteError",
    "StreamExistsError",
    "TooLargeError",
    "TrimmedError",
    "UnavailableError",
    "UnknownPolicyError",
    "Writer",
    "aio",
    "blocking",
    "connect",
]
