"""Everyday trainings by yet another author, who read neither rules nor results."""
