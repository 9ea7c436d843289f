"""The report that an engineer signs: one self-contained HTML file."""
