"""The function that tells people what the rules found."""
