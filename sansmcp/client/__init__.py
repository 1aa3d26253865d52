"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

``client`` holds all the others and moves them: it gives a part its input, matches on the outcome,
and gives the next part its input. No part knows the client, or another part beside it but where
this says so.

====================  ==============================================================================
``client``            commands, effects, events, time; who gets which outcome
``outcomes``          what the parts conclude
``options``           what can be set on a client and on its calls
``opening``           which transport and revision a server speaks, and how a session begins again
``request``           one JSON-RPC request, and what its response means
``stream``            when and how to connect again; holds a cursor
``input``             what the server asks, until it is answered
``post``              notifications and responses on their way
``exchange``          one HTTP exchange, and what it is for
``reader``            one HTTP response: parts in, outcomes out
``http_heads``        the heads of HTTP requests; refusals
``tool_headers``      headers that repeat parameters of tools
``cache``             results that are kept for as long as the server says that they hold
``line_channel``      the messages of a server process
``child_process``     the life of a server process
--------------------  ------------------------------------------------------------------------------
``legacy.handshake``  what the answer to ``initialize`` agrees upon
``legacy.cursor``     where a client is in a stream that can be resumed
``legacy.turn``       answers that are kept back until the server wants them (SEP-1858)
``legacy.endpoint``   where messages go on HTTP+SSE
====================  ==============================================================================
"""
