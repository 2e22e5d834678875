"""Stacks: they connect constructs, and define no resources themselves."""
