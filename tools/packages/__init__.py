"""Tests of the built distributions, in empty environments."""
