"""``sansmcp/schema.py``: generated from the schemas of the official package for TypeScript."""
