"""The client at the stateless revisions, by its public face."""
