"""Tests of the ASGI adapter."""
