"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

``client`` connects the parts: it passes an input to a part, matches on the outcome, and passes the
next input to another part. The parts do not use the client, and do not use each other unless the
table says so.

============================ =======================================================================
``client``                   commands, effects, events, time; the session and its opening
``calls``                    calls, from their start to their outcome; server requests
``outcomes``                 the outcomes that the parts return
``options``                  the settings of a client
``opening``                  finds transport and revision of a server; opens sessions
``request``                  one JSON-RPC request, and the meaning of its result
``attempts``                 what has become of the attempts at a request; whether to try again
``request_table``            the requests that have not ended: by number, and by the id in flight
``event_queue``              the events that the application has not taken
``stream_factory``           makes streams for requests, and those that belong to none
``connections``              the connections of a stream so far, and the delay before the next
``stream``                   when and how to reconnect; holds a cursor
``silence``                  the clocks that notice the silence of streams, and what follows from it
``input``                    the server requests without a response
``call_keys``                what follows a cut of a call with a key, by which to have its response
``task``                     the task of a call: what the server says of it, and what it means
``task_polling``             when to ask for the state of a task; the subscription to its changes
``procedures``               what happens to a call, to its outcome: generators
``post``                     notifications and responses: sends them until they are accepted
``transports.link``          what carries messages to a server, and what it delivers
``transports.http_link``     HTTP: what each exchange is for; deliveries; authorization; silence
``transports.http_requests`` requests over HTTP: their streams, reconnections and turns
``transports.http``          the open HTTP exchanges: redirects, cookies, tokens, aborts
``transports.http_sse``      the event stream that is a session of HTTP+SSE; its silence
``transports.standalone``    the stream of a session for messages that belong to no request
``transports.stdio``         the server process: its lines, effects and timer
``exchange``                 one HTTP exchange and its purpose
``reader``                   one HTTP response: parts in, outcomes out
``message_decoder``          messages of a server: read strictly, else if they mean one thing
``message_encoder``          messages of the client as bytes; the headers that repeat parts of them
``unread``                   texts of a server that are no responses, to be quoted in errors
``http_heads``               the heads of HTTP requests; refusals
``authorizing``              the authorization of one client; requests that wait for it
``tool_headers``             headers that repeat parameters of tools
``cache``                    cached lists and resources
``cookies``                  the cookies of the server's load balancer
``child_process``            the steps from start to shutdown of a server process
---------------------------- -----------------------------------------------------------------------
``legacy.handshake``         what the response to ``initialize`` negotiates
``legacy.cursor``            the position of a client in a resumable stream
``legacy.turn``              responses that are sent together at the end of a turn (SEP-1858)
``legacy.endpoint``          the URL for messages on HTTP+SSE
============================ =======================================================================
"""
