"""Ordinary trainings by four more authors, who read neither rules nor results."""
