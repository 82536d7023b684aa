"""Names of the cases that `geolog bench hedge` can run alone."""

CASES = ("stalls", "cut off", "paused", "all slow")
