"""Tests of the bridge, over sockets and processes."""
