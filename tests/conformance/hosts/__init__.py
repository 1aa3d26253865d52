"""The adapters: how each serves the application, and how each lets a client run a script.

A host is a module with ``serve(port)``, ``talk(url, script, standalone_stream=...)`` or both.
"""
