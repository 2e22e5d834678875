"""Looking into a network while it trains."""
