"""Stores that outlive a process."""
