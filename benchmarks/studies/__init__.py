"""Questions with a command of their own, asked now and then."""
