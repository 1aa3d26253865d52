"""The client machine: calls in, HTTP requests out; HTTP responses in, results out.

``client`` holds all the others and moves them: it gives a part its input, matches on the outcome,
and gives the next part its input. No part knows the client, or another part beside it but where
this says so.

====================  ==============================================================================
``client``            commands, effects, events, time; who gets which outcome
``outcomes``          the outcomes that the parts return
``options``           the settings of a client
``opening``           finds transport and revision of a server; opens sessions again
``request``           one JSON-RPC request, and the meaning of its response
``stream``            when and how to reconnect; holds a cursor
``input``             the server requests without a response
``post``              notifications and responses that the server has not accepted yet
``exchange``          one HTTP exchange and its purpose
``reader``            one HTTP response: parts in, outcomes out
``http_heads``        the heads of HTTP requests; refusals
``tool_headers``      headers that repeat parameters of tools
``cache``             results, kept for as long as the server allows
``line_channel``      the messages of a server process
``child_process``     the life of a server process
--------------------  ------------------------------------------------------------------------------
``legacy.handshake``  what the response to ``initialize`` negotiates
``legacy.cursor``     the position of a client in a stream that can be resumed
``legacy.turn``       input responses, kept until the server requests them (SEP-1858)
``legacy.endpoint``   where messages go on HTTP+SSE
====================  ==============================================================================
"""
