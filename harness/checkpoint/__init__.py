"""Checkpoints: seven fields, written together and read together, or not at all."""
