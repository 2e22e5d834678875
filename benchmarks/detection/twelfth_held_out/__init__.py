"""Trainings by a twelfth author, who read neither rules nor results."""
