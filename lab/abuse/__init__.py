"""What one client can do to another: every field doubled, costs multiplied, and half an hour of everything at once.

    python -m lab.abuse.doubling      each field of each request, and pairs of fields, beside a steady neighbour
    python -m lab.abuse.storm         three servers under all attacks, beside honest clients

All traffic stays on this machine, every wait has an end, and a server may take only so much memory.
"""
