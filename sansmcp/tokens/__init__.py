"""Verify access tokens, without I/O: claims, keys, caches, and the requests that are needed.

``sansmcp_auth`` makes functions for ``authenticate`` from these parts. Wall-clock time is an
argument, in seconds since 1970, as in the tokens.
"""
