"""A regression by boosted trees, and what the hook shows of it."""
