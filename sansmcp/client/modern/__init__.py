"""The client at 2026-07-28: no handshake, no sessions, every request stands alone."""
