"""The client half of OAuth 2.1, without I/O: HTTP message parts in, effects and events out."""
