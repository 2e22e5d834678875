"""Constructs: each is one capability of a deployment."""
