"""Everyday trainings, written by somebody who read neither rules nor the fitting table."""
