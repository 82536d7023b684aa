"""Where RELAY will stand: coordinators and bridges that carry a stream to its mirrors."""
