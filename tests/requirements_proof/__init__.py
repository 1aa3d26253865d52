"""Patches that break rules of the protocol, each of which the tests named for its rule notice."""
