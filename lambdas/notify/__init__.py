"""The function that sends messages about what the rules found."""
