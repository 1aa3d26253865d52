"""The server machine: HTTP requests in, calls out; their answers in, HTTP responses out.

==========================  ========================================================================
``server``                  the machine: parts in, effects and events out, time
``options``                 what can be set on it
``validation``              what a request must be to be read at all
``era_choice``              which era a request is of, decided before all else
``refusals``                every way of saying no
``exchange``                one HTTP request and its response
``channel``                 one conversation on stdio or HTTP+SSE
``stdio``                   the bytes of stdio
``core``                    what the parts share: settings, queues, timers
``calls`` ``responder``     a request that is worked on, and how its answer travels
``input_checks``            what clients may be asked for input, and which of them
``store_completions``       what the machine is told about its store
--------------------------  ------------------------------------------------------------------------
``modern.era``              what messages mean that stand alone, or why they are refused
``modern.stateless``        how they are answered: on HTTP, on stdio
``modern.results``          results as they have to be, and questions in them
``modern.subscriptions``    clients that listen for changes
--------------------------  ------------------------------------------------------------------------
``legacy.era``              all that clients of the handshake revisions take:
``legacy.session_validation`` why a request of theirs is refused
``legacy.dispatcher``       what their messages mean
``legacy.sessions``         what is remembered of a client between requests,
``legacy.session_records``  also by other instances
``legacy.streams``          logs and their readers: resumption and polling
``legacy.stream_table``     the way of logs to the store
``legacy.parked_calls``     calls that wait for answers in their log
``legacy.mailbox``          what comes to one instance and is for another
``legacy.streamable_http``  one transport,
``legacy.session_responder`` how it answers a POST,
``legacy.http_sse``         another,
``legacy.session_channel``  and what is the same on stdio
``legacy.results``          what answers look like on all of them
==========================  ========================================================================
"""
