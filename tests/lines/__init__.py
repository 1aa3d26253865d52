"""The programs whose lines are counted."""
