"""Judges a drill from its record: did it recover, how far is that proven, and what did it cost.

Pure: a DrillRecord in, a Recovery out. The judge trusts what was looked at (facts: pids, hashes,
checkpoints read again) over what the trainer says of itself (happenings).
"""
