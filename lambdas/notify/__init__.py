"""The function that sends messages about findings."""
