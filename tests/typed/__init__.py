"""Typed results, lists page by page, and groups of clients: against real servers."""
