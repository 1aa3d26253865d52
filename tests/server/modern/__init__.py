"""The server at the stateless revision, 2026-07-28."""
