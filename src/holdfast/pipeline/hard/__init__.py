"""What many models fail together: mining, why they fail, and what helps."""
