"""Reading a stream: from where, its segments one after another, its tail, verification."""
