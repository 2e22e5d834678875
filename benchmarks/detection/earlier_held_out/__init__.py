"""Programs of earlier held-out sets: hard ones, or with a kind of model that others lack."""
