"""What hosts have in common: how a machine is driven, and how what it tells finds its way.

How a host carries exchanges, keeps the time and waits is its own business; this is the rest.
"""
