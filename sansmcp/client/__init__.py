"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

========================  ==========================================================================
``client``                the machine: commands, effects, events, time
``settings``              what can be set on it, and on its calls, as types
``core``                  what its parts share: settings, queues, the exchanges under way
``conversation``          what is under way: session, calls, how it begins and ends
``inbox``                 what the server says, and whom it is for
``detection``             what the answers of a server say about its age, as tables
``calls``                 requests and how each ends exactly once
``questions``             what the server asks
``transport``             what the parts want of a transport:
``streamable_http``       a URL,
``stdio``                 a process
``exchange``              one HTTP request and what its response is
``posts``                 messages that want no answer
------------------------  --------------------------------------------------------------------------
``modern.discovery``      how a server is asked whether it does without a handshake
``modern.requests``       requests that stand alone, and the headers that repeat parts of them
``modern.refresh``        looking up once more which parts
``modern.cache``          results that are kept for as long as the server says that they hold
``modern.rounds``         questions that come in the result of a call, and what follows them
------------------------  --------------------------------------------------------------------------
``legacy.era``            all that servers of the handshake revisions take:
``legacy.handshake``      how a conversation opens, and opens again when the server has forgotten it
``legacy.streams``        what a session adds to Streamable HTTP
``legacy.cursor``         one end of a stream, over any number of connections
``legacy.turns``          answers that are kept back until the server wants them (SEP-1858)
``legacy.listener``       the standalone stream (GET)
``legacy.http_sse``       the transport of 2024-11-05
========================  ==========================================================================
"""
