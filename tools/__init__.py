"""Programs that serve the development of the project."""
