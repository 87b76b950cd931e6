"""The ideal placement with the fewest moves, and the proof that fewer would not do. Numbers only:
it knows neither the registry nor a clock.
"""
