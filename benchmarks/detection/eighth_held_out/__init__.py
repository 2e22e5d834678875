"""Trainings by an eighth author, who read neither rules nor results."""
