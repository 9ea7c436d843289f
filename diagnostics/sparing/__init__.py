"""Sparing: how many spares a rack and a hall need, and who gets them when they are few. Pure.

In: failure rates, stock, the roots of judged runs. Out: a decision for each root, what stays
exposed, and figures for planning: closed forms, and a simulation that agrees with them.
"""
