"""Signs to causes: one table and one small function for each sort of sign."""
