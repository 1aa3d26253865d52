"""Write ``sansmcp/schema.py`` again; ``make schemas`` runs this."""

from .generator import MODULE, generate

MODULE.write_text(generate(), encoding="utf-8")
print(f"wrote {MODULE}")
