"""Trainings by a tenth author, who read neither rules nor results."""
