"""What runs after what."""
