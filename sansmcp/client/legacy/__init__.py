"""The client at 2024-11-05 to 2025-11-25: handshakes, resumable streams, turns.

Other modules import this folder only when the client uses such a revision, so it can be deleted
together with them.
"""
