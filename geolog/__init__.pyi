import geolog.aio as aio
import geolog.blocking as blocking
from geolog.client.connect import connect as connect
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
from geolog.client.writing.writer import Writer as Writer
from geolog.client.writing.writer_pending import AckLevel as AckLevel
from geolog.client.writing.writer_pending import Pending as Pending
from geolog.client.writing.writer_pending import Receipt as Receipt
from geolog.partition.repeated_batch import ForgottenSeqError as ForgottenSeqError
from geolog.partition.repeated_batch import RepeatUnreadError as RepeatUnreadError
from geolog.protocol.ids import DLSN as DLSN
from geolog.protocol.ids import Position as Position
from topology.errors import ClosedError as ClosedError
from topology.errors import ConflictError as ConflictError
from topology.errors import DamagedBytesError as DamagedBytesError
from topology.errors import DataLostError as DataLostError
from topology.errors import FencedError as FencedError
from topology.errors import GeologError as GeologError
from topology.errors import InvalidArgumentError as InvalidArgumentError
from topology.errors import NoSuchStreamError as NoSuchStreamError
from topology.errors import NotEnoughNodesError as NotEnoughNodesError
from topology.errors import NotFoundError as NotFoundError
from topology.errors import OutcomeUnknownError as OutcomeUnknownError
from topology.errors import OverCapacityError as OverCapacityError
from topology.errors import SealedError as SealedError
from topology.errors import TooLargeError as TooLargeError
from topology.errors import TrimmedError as TrimmedError
from topology.errors import UnavailableError as UnavailableError

__all__ = [
    "DLSN",
    "EARLIEST",
    "LATEST",
    "AckLevel",
    "AtDlsn",
    "AtSequence",
    "AtTime",
    "AtTransaction",
    "Bound",
    "ClosedError",
    "ConflictError",
    "DamagedBytesError",
    "DataLostError",
    "FencedError",
    "ForgottenSeqError",
    "Gap",
    "GapReason",
    "GeologError",
    "InvalidArgumentError",
    "LastRecords",
    "Log",
    "LogConfig",
    "NoSuchStreamError",
    "NotEnoughNodesError",
    "NotFoundError",
    "OutcomeUnknownError",
    "OverCapacityError",
    "Pending",
    "Position",
    "ReadTrimmedError",
    "Reader",
    "Receipt",
    "Record",
    "RecordBatch",
    "RepeatUnreadError",
    "SealedError",
    "TooLargeError",
    "TrimmedError",
    "UnavailableError",
    "Writer",
    "aio",
    "blocking",
    "connect",
]
