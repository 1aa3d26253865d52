"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

========================  ==========================================================================
``client``                the machine: commands, effects, events, time
``core``                  what its parts share: settings, queues, the exchanges under way
``handshake``             how a conversation opens, and opens again when the server has forgotten it
``calls``                 requests and how each ends exactly once
``cursor``                one end of a stream, over any number of connections
``exchange``              one HTTP request and what its response is
``listener``              the standalone stream (GET)
``posts``                 messages that want no answer
========================  ==========================================================================
"""
