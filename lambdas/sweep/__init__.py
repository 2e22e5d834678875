"""The function that re-evaluates runs without recent files."""
