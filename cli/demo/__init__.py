"""`evenkeel demo`: the story, what it shows while it runs, and what it found."""
