"""The function that looks after the runs of which nothing comes any more."""
