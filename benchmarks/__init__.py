"""How fast the library is, next to others."""
