"""Does my vision model see the object, or lean on everything around it?"""
