"""How scenes are drawn: planes of values (``fields``) and outlines (``geometry``)."""
