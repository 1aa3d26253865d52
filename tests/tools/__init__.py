"""Tools made from functions."""
