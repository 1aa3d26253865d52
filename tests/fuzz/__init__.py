"""Mutated requests, lines, responses and output against machines of all revisions.

Each test is a seed: it takes messages such as peers send, mutates them at random, and feeds them in
pieces. No machine may raise, all pending calls end within the limits, and another client of the
same server, the bystander, gets its responses throughout. A failure names the seed and the number
of the mutation, so that it can be repeated.
"""
