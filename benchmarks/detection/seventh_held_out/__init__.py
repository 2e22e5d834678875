"""Trainings by a seventh author, who read neither rules nor results."""
