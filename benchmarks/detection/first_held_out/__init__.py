"""Programs on which rules were judged unseen once, in the first version; seen since."""
