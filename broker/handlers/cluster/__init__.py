"""What a client asks first: versions, nodes, topics, leaders; and what it is authorized to do."""
