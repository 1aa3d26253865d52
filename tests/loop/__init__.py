"""Tests of what adapters for asyncio and trio have in common."""
