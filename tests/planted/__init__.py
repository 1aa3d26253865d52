"""Bugs that are planted to see whether the simulator finds them."""
