"""The fleet test: processes behind a proxy that are killed while calls run.

``python -m tests.fleet`` starts servers, a store and a proxy, and clients of several revisions, and
breaks everything but the clients, by seed. Each execution of a handler is counted outside the
processes, in a file to which all append (``journal``). At the end every call is judged by what its
client got and what was executed (``verdict``).
"""
