"""Settings of every command and server, the page that documents them, and the WAN's file."""
