"""Programs on which the pack `recommended` is calibrated."""
