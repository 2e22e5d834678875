"""Everyday trainings by one more author, who read neither rules nor results."""
