"""The verdict of a drill on relays, as a test wants it."""


def assert_whole(verdict: object, *, faults_count: int) -> None:
    """In each region nothing is lost, repeated, out of order, missing or foreign."""
    assert isinstance(verdict, dict)
    counts = verdict["counts"]
    assert (verdict["problems"], counts.pop("faults")) == ([], faults_count)
    assert counts.pop("acknowledged") > 100
    assert set(counts.values()) == {0}
    assert {name.rpartition("_")[0] for name in counts} == {
        "lost",
        "repeated",
        "out_of_order",
        "gaps",
        "unequal_or_foreign",
    }
