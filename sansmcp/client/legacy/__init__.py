"""The client at 2024-11-05 to 2025-11-25: handshakes, streams that can be resumed, turns.

Nothing outside imports this folder unless the client speaks such a revision, so it can be deleted
with those revisions.
"""
