"""The table of guarantees: what becomes of a call that is cut, over real processes."""
