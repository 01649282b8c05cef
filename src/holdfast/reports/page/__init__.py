"""How a page is written: sections, figures, tables, words."""
