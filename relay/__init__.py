"""Home of RELAY, to come: coordinators and bridges that carry a stream to its mirrors."""
