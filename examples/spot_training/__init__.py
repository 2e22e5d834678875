"""A training on spot capacity: interrupted twice, each time resumed on another machine."""
