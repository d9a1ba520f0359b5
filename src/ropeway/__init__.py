"""Ropeway: one language model, split by layer ranges over mixed machines."""

__version__ = "0.1.0"
