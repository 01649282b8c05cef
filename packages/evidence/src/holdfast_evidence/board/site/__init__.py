"""The board as a folder of plain pages that open from disk and from any web server."""
