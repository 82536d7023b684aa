"""Java as these tests start it: each process lives for seconds."""

SHORT_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Half the processor time to start Spark: optimized code would never pay for its making."""
