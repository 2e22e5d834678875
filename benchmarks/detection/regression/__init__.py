"""Programs that were held out once: they show that no finding is lost."""
