"""Starts training commands, ours and anybody's, watches what they say, and leaves none behind."""
