"""Programs that nothing is calibrated on."""
