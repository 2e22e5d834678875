"""Runs that a user would make, each a script that works from the checkout."""
