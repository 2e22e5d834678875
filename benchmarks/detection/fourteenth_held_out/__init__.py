"""Trainings by two more authors, who read neither rules nor results."""
