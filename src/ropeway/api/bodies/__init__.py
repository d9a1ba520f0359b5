"""What clients may send, as pydantic models: strict types, no unknown fields, bounded counts."""
