"""One mastership of a coordinator: its groups, members, rebalances, deadlines, requests under
way."""
