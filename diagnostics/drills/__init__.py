"""The drills: each a function that injects a fault into a training run on a stage.

Drills drive hardware and processes through harness only, and conclude nothing: what they saw is
judged by diagnostics.recovery.
"""
