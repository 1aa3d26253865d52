"""Mutated requests, lines, responses and output against machines of all revisions.

Each test is a seed: it takes messages such as peers send, damages them at random, and feeds them
in pieces. Nothing may raise out of a machine, whatever is pending ends within the limits, and a
bystander at the same server is answered throughout. What a test finds it names by seed and number,
so that it can be repeated.
"""
