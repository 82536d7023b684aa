"""When members are replaced, and when a replacement waits."""

from geolog.protocol.ensemble_policy import EnsemblePolicy, EnsembleView, Need, Replace


def policy() -> EnsemblePolicy:
    return EnsemblePolicy(member_away_s=10.0, change_distance_s=30.0)


def view(
    away: dict[int, float] | None = None, *, stuck: bool = False, late: str = ""
) -> EnsembleView:
    """`late`: slots that hold back the oldest entry, which has waited too long."""
    return EnsembleView(
        away_since_s=away or {},
        is_stuck=stuck,
        is_late=bool(late),
        slots_late=tuple(int(slot) for slot in late),
    )


def test_an_ensemble_that_is_up_stays() -> None:
    assert policy().due(view(), now_s=100) is None


def test_a_member_away_for_a_moment_is_waited_for() -> None:
    assert policy().due(view({1: 0.0}), now_s=9.9) is None


def test_a_member_away_for_long_is_replaced() -> None:
    assert policy().due(view({1: 0.0}), now_s=10) == Replace((1,), Need.AWAY)


def test_members_that_left_shortly_after_go_with_it_but_not_one_that_just_left() -> None:
    away = {0: 5.0, 1: 0.0, 2: 9.0}

    assert policy().due(view(away), now_s=10) == Replace((0, 1), Need.AWAY)


def test_stuck_entries_replace_all_absent_members_at_once() -> None:
    assert policy().due(view({2: 5.0, 1: 5.0}, stuck=True), now_s=5) == Replace(
        (1, 2), Need.STUCK
    )


def test_a_late_entry_replaces_the_members_that_hold_it_back() -> None:
    assert policy().due(view(late="20"), now_s=5) == Replace((0, 2), Need.LATE)


def test_calm_changes_keep_a_distance_in_time() -> None:
    core = policy()
    core.on_changed(now_s=100)

    assert core.due(view({1: 100.0}), now_s=129) is None
    assert core.due(view({1: 100.0}), now_s=130) is not None
    assert core.due(view({1: 100.0}, stuck=True), now_s=101) is not None


def test_failed_tries_pause_longer_each_time_and_the_first_is_news() -> None:
    core = policy()
    tries = []
    now_s = 0.0
    for _ in range(8):
        while core.due(view({1: -10.0}), now_s=now_s) is None:
            now_s += 1
        tries.append((now_s, core.on_failed(now_s=now_s)))

    assert [at_s for at_s, _ in tries] == [0, 10, 30, 70, 150, 310, 630, 950]
    assert [is_news for _, is_news in tries] == [True] + [False] * 7


def test_urgent_changes_do_not_pause() -> None:
    core = policy()
    core.on_failed(now_s=0)

    assert core.due(view({1: -10.0}), now_s=1) is None
    assert core.due(view({1: -10.0}, stuck=True), now_s=1) is not None


def test_a_failure_is_news_again_once_all_members_were_up() -> None:
    core = policy()
    core.on_failed(now_s=0)
    core.due(view(), now_s=1)

    assert core.on_failed(now_s=50)
