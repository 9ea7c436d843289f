"""Transient, intermittent or persistent: a sequential test with a budget. Pure.

In: the signs of a case and the outcomes of retests. Out: a belief over causes, the next retest that
is worth its cost, and a decision with its reasons.
"""
