"""The function that stops a training job in which a rule found an issue."""
