"""Typical trainings, written without a look at the rules, that nothing is calibrated on."""
