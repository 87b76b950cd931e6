"""The admin client, its part about consumer groups, and the values it returns."""
