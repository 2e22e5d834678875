"""Healthy trainings as tutorials show them, run unchanged: whom do the rules accuse?"""
