"""The classifier held against faults whose truth is known, beside three simpler policies. Pure.

The injector is written apart from the classifier: its parameters stand in worlds.toml, its losses
in loss.toml, and it reads nothing of `retest`. In: a world, a seed, a count. Out: who was right,
how sure of it, and what the errors cost.
"""
