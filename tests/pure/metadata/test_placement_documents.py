"""Placement documents in metadata, as in docs/FORMATS.md, and older records without fields."""

import json
import re
from pathlib import Path

import pytest
import trio
from crc32c import crc32c

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.placement_switches import SwitchesRecord, change_switches, read_switches
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from sim.fakes.memory_metadata import open_memory_store
from topology.errors import DamagedBytesError
from topology.location import Location
from topology.quorum import QuorumConfig
from topology.stream_policy import REGION_AWARE_TERMS, PlacementTerms, PolicyKind
from topology.switches import PlacementSwitches

QUORUM = QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1)
TERMS = PlacementTerms(policy=PolicyKind.RACK_AWARE, min_racks=3)
LEDGER = LedgerRecord(
    ledger=LedgerId(7),
    state=LedgerState.OPEN,
    epoch=Epoch(1),
    quorum=QUORUM,
    fragments=(Fragment(EntryId(0), (Member(InstanceId("aa"), "a-1", Location("a", "r1")),)),),
    placement=TERMS,
)
STREAM = StreamRecord(
    name=StreamName("shop", "orders"),
    mode=StreamMode.GLOBAL,
    quorum=QUORUM,
    segment_bytes=1 << 20,
    created_us=0,
    life="1",
    placement=TERMS,
    survive="1 rack",
)


def body_of(value: object) -> dict[str, object]:
    body = json.loads(seal_document(value))["body"]
    assert isinstance(body, dict)
    return body


def without(value: object, *names: str) -> bytes:
    """The document as written by a version without these fields."""
    body = {name: item for name, item in body_of(value).items() if name not in names}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f'{{"body":{text},"crc32c":"{crc32c(text.encode()):08x}"}}'.encode()


def test_the_page_shows_the_fields_as_they_are_written() -> None:
    page = (Path(__file__).parents[3] / "docs" / "FORMATS.md").read_text()
    shown = re.findall(
        r'^("placement".*|"survive".*|\{"forbidden_regions".*)$', page, re.MULTILINE
    )
    stream = body_of(STREAM)

    assert json.loads("{" + shown[0].rstrip(",") + "}")["placement"] == stream["placement"]
    assert json.loads("{" + shown[1] + "}")["survive"] == stream["survive"]
    assert json.loads(shown[2]) == body_of(SwitchesRecord(forbidden_regions=("eu-west",)))


def test_records_from_before_there_was_a_choice_are_region_aware() -> None:
    ledger = open_document(without(LEDGER, "placement"), LedgerRecord, path="/l")
    stream = open_document(without(STREAM, "placement", "survive"), StreamRecord, path="/s")

    assert ledger.placement == stream.placement == REGION_AWARE_TERMS
    assert stream.survive == ""


def test_a_record_with_an_unknown_policy_is_refused() -> None:
    text = seal_document(LEDGER).replace(b"rack_aware", b"moon_aware")
    body = json.dumps(json.loads(text)["body"], sort_keys=True, separators=(",", ":"))
    unknown = f'{{"body":{body},"crc32c":"{crc32c(body.encode()):08x}"}}'.encode()

    with pytest.raises(
        DamagedBytesError, match="/l is intact, but required fields are missing"
    ):
        open_document(unknown, LedgerRecord, path="/l")


async def test_concurrent_changes_of_switches_both_take_effect() -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        await metadata.ensure_path(ClusterPaths("default").root)
        known = frozenset({"a", "b"})

        async def forbid(region: str) -> None:
            async with store.open_session() as mine:
                await change_switches(
                    mine, "default", lambda switches: switches.forbidding(region, known)
                )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(forbid, "a")
            nursery.start_soon(forbid, "b")

        assert await read_switches(metadata, "default") == PlacementSwitches(known)
