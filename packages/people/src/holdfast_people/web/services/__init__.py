"""What the routes of the server share: its state, requests and their checks, pages, errors, and the mask editor."""
