"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

========================  ==========================================================================
``client``                the machine: commands, effects, events, time
``core``                  what its parts share: settings, queues, the exchanges under way
``conversation``          what is under way, and how messages find their way
``detection``             what the answers of a server say about its age, as tables
``discovery``             how a server is asked whether it does without a handshake
``handshake``             how a conversation opens, and opens again when the server has forgotten it
``calls``                 requests and how each ends exactly once
``questions``             what the server asks
``rounds``                questions that come in the result of a call, and what follows them
``modern``                requests that stand alone, and the headers that repeat parts of them
``refresh``               looking up once more which parts
``streamable_http``       the transports: a URL,
``http_sse``              a URL of old,
``stdio``                 a process
``cursor``                one end of a stream, over any number of connections
``exchange``              one HTTP request and what its response is
``listener``              the standalone stream (GET)
``posts``                 messages that want no answer
========================  ==========================================================================
"""
