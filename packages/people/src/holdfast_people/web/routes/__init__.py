"""The routers, one file per part of the site."""
