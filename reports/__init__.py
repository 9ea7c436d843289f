"""Writes and reads, and never decides. Comes in: a record and its judgement. Goes out: files."""
