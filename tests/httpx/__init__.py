"""Tests of the httpx adapter."""
