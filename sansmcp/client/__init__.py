"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

``client`` connects the parts: it passes an input to a part, matches on the outcome, and passes the
next input to another part. The parts do not use the client, and do not use each other unless the
table says so.

====================  ==============================================================================
``client``            commands, effects, events, time; acts on outcomes
``outcomes``          the outcomes that the parts return
``options``           the settings of a client
``opening``           finds transport and revision of a server; opens sessions
``request``           one JSON-RPC request, and the meaning of its response
``stream``            when and how to reconnect; holds a cursor
``input``             the server requests without a response
``task``              the task of a call: what the server says of it, and when to ask again
``post``              notifications and responses that the server has not accepted
``exchange``          one HTTP exchange and its purpose
``reader``            one HTTP response: parts in, outcomes out
``http_heads``        the heads of HTTP requests; refusals
``authorizing``       the authorization of one client; requests that wait for it
``tool_headers``      headers that repeat parameters of tools
``cache``             cached lists and resources
``line_channel``      the messages of a server process
``child_process``     start, output and shutdown of a server process
--------------------  ------------------------------------------------------------------------------
``legacy.handshake``  what the response to ``initialize`` negotiates
``legacy.cursor``     the position of a client in a resumable stream
``legacy.turn``       responses that are sent together at the end of a turn (SEP-1858)
``legacy.endpoint``   the URL for messages on HTTP+SSE
====================  ==============================================================================
"""
