"""The server machine: HTTP requests in, calls out; their answers in, HTTP responses out.

========================  ==========================================================================
``server``                the machine: parts in, effects and events out, time
``dispatch``              the ladder: what a request is, or why it is refused
``refusals``              every way of saying no
``exchange``              one HTTP request and its response
``core``                  what the parts share: settings, queues, timers
``streams``               logs and their readers: resumption and polling
``calls``                 a request that is worked on, and how its answer travels
``sessions``              what is remembered of a client between requests
``legacy``                what the messages of the handshake revisions mean
========================  ==========================================================================
"""
