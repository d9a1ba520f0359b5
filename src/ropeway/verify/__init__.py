"""Is a placement exact, and if not, how close: reports against the whole model."""
