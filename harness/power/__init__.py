"""Loads that all GPUs of a rack carry at the same time, and what power and heat say of them.

together.py keeps the GPUs in step, window.py reads counters over a window, wave.py plans a square
wave and when it is sampled, spectrum.py finds its lines.
"""
