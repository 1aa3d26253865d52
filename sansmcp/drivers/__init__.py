"""Base classes of drivers: they perform a machine's effects and dispatch its events.

Exchanges, timers and waiting differ between drivers; subclasses implement them.
"""
