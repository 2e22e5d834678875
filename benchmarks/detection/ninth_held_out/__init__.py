"""Trainings by a ninth author, who read neither rules nor results."""
