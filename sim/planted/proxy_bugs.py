"""Defects of write proxies and their clients: each replaces a good method."""

import attrs

from geolog.client.proxies import remote_partition
from geolog.client.proxies.connection import ProxyChannel
from geolog.client.proxies.remote_partition import RemoteBatch, RemotePartition
from geolog.partition.batch_sink import SentBatch
from geolog.partition.partition_writer import PartitionWriter
from geolog.protocol.owner_answers import AppendRefused, Received
from geolog.protocol.sent_batches import SentBatches
from geolog.wire.session.batches import BatchesFromProxy
from geolog.wire.session.channel_messages import BatchPlaced, SendBatch
from regions.proxy import batch_session
from sim.planted.planted_bug import PlantedBug
from sim.world.draws.proxy_draws import with_proxies
from topology.errors import GeologError, UnavailableError

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_on_closed = RemotePartition._on_closed
_keep_or_give_up = SentBatches[RemoteBatch].on_closed
_answered = batch_session._answered


def lose_at_a_redirect(
    sent: SentBatches[RemoteBatch], taken_count: int | None = None
) -> list[RemoteBatch]:
    """Forget the first batch without an answer, if the proxy says why the channel ends."""
    unknown = _keep_or_give_up(sent, taken_count)
    if taken_count is not None and sent._unanswered:
        sent._unanswered.popleft()
    return unknown


def send_again_without_seqs(partition: RemotePartition, channel: ProxyChannel) -> None:
    """Keep what was sent, but as records of a nameless writer."""
    sent = partition._sent
    for kept in list(sent._unanswered)[: sent._sent_count - sent._answered_count]:
        kept.batch.terms = attrs.evolve(kept.batch.terms, writer=None, seq_before=None)
    _on_closed(partition, channel)


def tell_refused(error: GeologError) -> AppendRefused:
    """Report what may be in the log as refused."""
    return AppendRefused(UnavailableError(f"the proxy goes away: {error}"))


async def answer_what_is_received(
    message: SendBatch, channel: batch_session._Channel, owner: PartitionWriter, sent: SentBatch
) -> BatchesFromProxy | None:
    """Say that the batch is in the log once it is in memory."""
    owner.want_received()
    await sent.received.wait()
    if isinstance(sent.answer, Received):
        place = sent.answer
        return BatchPlaced(
            message.channel,
            message.number,
            place.segment,
            place.entry,
            place.slot,
            place.first_sequence,
        )
    return await _answered(message, channel, owner, sent)


PROXY_BUGS: dict[str, PlantedBug] = {
    "redirect-loses-batch": PlantedBug(
        83,
        "a redirect loses a batch without an answer",
        [(SentBatches, "on_closed", lose_at_a_redirect)],
        made_for=with_proxies,
    ),
    "retry-without-seq": PlantedBug(
        84,
        "a batch is sent again on another session without its seqs",
        [(RemotePartition, "_on_closed", send_again_without_seqs)],
        made_for=with_proxies,
    ),
    "unknown-at-goaway-as-refused": PlantedBug(
        85,
        "what a proxy that goes away leaves unknown is reported as refused",
        [(remote_partition, "Unknown", tell_refused)],
        made_for=with_proxies,
    ),
    "answered-before-owner": PlantedBug(
        86,
        "a proxy answers a batch before the owner's answer",
        [(batch_session, "_answered", answer_what_is_received)],
        made_for=with_proxies,
    ),
}
"""These bugs, by name."""
