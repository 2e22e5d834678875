"""What several functions use: settings, clients, logs and metrics, the state table, events."""
