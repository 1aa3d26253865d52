"""The second line of defence: what an exception that no one expects may cost."""
