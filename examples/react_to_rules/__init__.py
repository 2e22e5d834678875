"""A training that goes wrong, is stopped through EventBridge, and is told to a subscriber."""
