"""Small networks of drawn scenes, trained the same way by the recipes of the embedded ones and by studies."""
