"""Laws over the nodes' cores, metadata and the wire, judged after every step."""
