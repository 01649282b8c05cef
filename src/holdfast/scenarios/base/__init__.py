"""What every scenario is made of: its definition, a condition as users write it, the rendering, and compositing."""
