"""Helpers of the cluster tests. A script imports them as lib.NAME with tests/cluster on its path."""
