"""``holdfast synth``: scenario images as files."""
