"""Evidence that others can check: bundles, boards, declarations, dossiers, series of runs, audits of tables."""
