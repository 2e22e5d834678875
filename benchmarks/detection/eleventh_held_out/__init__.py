"""Trainings by an eleventh author, who read neither rules nor results."""
