"""The demo: one healthy and one sick training run, watched by the deployed pipeline."""
