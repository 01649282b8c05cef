"""Plain functions image + mask → image, one family a file."""
