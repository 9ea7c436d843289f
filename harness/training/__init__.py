"""The reference training run: a small deterministic transformer, replicas as real processes."""
