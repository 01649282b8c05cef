"""Results for others: bundles that open years later, and formats of other tools."""
