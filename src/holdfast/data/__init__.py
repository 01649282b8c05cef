"""Read and write image collections; label spaces; splits."""
