"""Run the examples that put a client behind the tool classes of frameworks; no model is called."""
