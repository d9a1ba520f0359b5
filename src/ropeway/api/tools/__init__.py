"""Tool calls: how a model writes them, how they are forced, and how they are read out of a stream of text."""
