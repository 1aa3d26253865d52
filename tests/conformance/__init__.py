"""The official conformance suite, run against every adapter and judged strictly."""
