"""Modules that several functions share: settings, clients, logs, metrics, state table, events."""
