"""The function that evaluates one rule over the steps that arrive."""
