"""The common parts of adapters for asyncio and trio, and the running event loop of either.

The loop offers just what adapters for both need. It is no layer for applications: it has neither
nurseries nor sockets, and cancels whole tasks only.
"""
