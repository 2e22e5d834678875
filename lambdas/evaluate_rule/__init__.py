"""The function that evaluates one rule over new steps."""
