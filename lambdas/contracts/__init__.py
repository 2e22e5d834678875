"""Names that the functions and the infrastructure share; standard library only."""
