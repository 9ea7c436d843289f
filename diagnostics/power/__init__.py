"""Judges a power drill: DD1 to DD13, the six steps of a transient, and the ledger.

record.py makes a PowerRecord of the facts of a drill's record; windows.py cuts the time by events;
claims_*.py say what holds. All times are virtual seconds since the power run began, all powers W.
"""
