"""Laws about hand-overs: what their owners were told."""

from collections.abc import Iterator

from sim.world.history import Ending, History


def lost_means_anothers(history: History, _ending: Ending) -> Iterator[str]:
    """Law 10: a hand-over loses a partition only to another owner."""
    for epoch, epoch_then, words in history.lost_in_hand_overs:
        if epoch_then == epoch:
            yield f"{words}, yet nobody took it from epoch {epoch}"
