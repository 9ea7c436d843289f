"""Judges, and never touches hardware. Comes in: a record. Goes out: Check, Diagnosis, verdict."""
