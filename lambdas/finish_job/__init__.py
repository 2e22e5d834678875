"""The function that finishes the evaluation of ended training jobs."""
