"""Several engines behind one address, on one machine or on many: routing, streams that survive a machine, batches.

Ray does replicas, restarts, autoscaling and drain (`on_ray/`, the extra `outdraft[ray]`); what is ours needs no Ray.
"""
