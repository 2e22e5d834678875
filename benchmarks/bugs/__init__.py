"""Training programs with bugs that people really had, each with its fix."""
