"""A run with a fault: EventBridge stops it and notifies a subscriber."""
