"""What people's votes say, as pages and sections."""
