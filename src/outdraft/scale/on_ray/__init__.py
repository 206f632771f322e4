"""Ray around engines: it places replicas on nodes, restarts them, scales and drains them (the extra `outdraft[ray]`).

Only public interfaces of Ray are used. Nothing here is imported before it is asked for.
"""
