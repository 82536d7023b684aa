"""Reading a stream: bounds, segment after segment, the tail."""
