"""PURE: messages between relays as bytes."""
