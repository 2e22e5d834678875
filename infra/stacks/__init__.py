"""Stacks: they wire constructs, and define no resources themselves."""
