"""A hedge policy that is not geolog's, as a user of `connect` may give one."""

from typing import Final

from geolog.client.hedging import hedge_policy
from geolog.protocol.hedge_policy import HedgeMoment, HedgePolicy, HedgeTerms

OWN_NAME: Final = "own"
"""The name by which options of a world ask for it."""


class EagerPolicy:
    """Asks the next replica at once, then pauses 50 ms, and asks no fourth one.

    It pauses as no policy of geolog's does: it is blind to routes, and it spends no budget.
    """

    name = OWN_NAME
    terms = HedgeTerms(is_budgeted=False)

    def pause_s(self, moment: HedgeMoment) -> float | None:
        """No pause, a short one, none ever."""
        return (0.0, 0.05)[moment.asked_count - 1] if moment.asked_count <= 2 else None


def hedge_of_world(name: str) -> HedgePolicy:
    """The policy that the options of a world name."""
    return hedge_policy(EagerPolicy() if name == OWN_NAME else name)
