"""The server machine: HTTP requests in, calls out; responses of calls in, HTTP responses out.

==========================  ========================================================================
``server``                  the machine: parts in, effects and events out, time
``options``                 its settings
``validation``              the validators of every HTTP request
``era_choice``              the choice between 2026-07-28 and the handshake revisions
``refusals``                every refusal, as a table
``admission`` ``addresses`` the rate limit, and the addresses that it counts
``exchange``                one HTTP request and its HTTP response
``channel``                 a message stream each way: stdio or HTTP+SSE
``stdio``                   the bytes of stdio
``core``                    the state that the parts share: settings, queues, timers
``calls`` ``responder``     a running call, and how its response is sent
``input_checks``            which input requests are allowed, and which capabilities they need
``store_completions``       how a driver reports the outcome of store effects
``health``                  the health answer for load balancers
``store_health``            whether the store works at present
--------------------------  ------------------------------------------------------------------------
``modern.era``              the messages of 2026-07-28: their validators and meaning
``modern.stateless``        their transports: HTTP and stdio
``modern.results``          the form of their results, and input requests in them
``modern.subscriptions``    subscriptions to changes
--------------------------  ------------------------------------------------------------------------
``legacy.era``              the handshake revisions: entry point of the parts below
``legacy.session_validation`` the validators of their HTTP requests
``legacy.dispatcher``       the meaning of their messages
``legacy.sessions``         sessions
``legacy.session_records``  sessions in the store, for other instances
``legacy.streams``          logs and their readers: resumption and polling
``legacy.stream_table``     the streams of an instance and their store operations
``legacy.leases``           how instances notice that another one has died
``legacy.parked_calls``     calls that wait in the store for input responses
``legacy.shared_logs``      logs to which all instances append
``legacy.publications``     notifications of changes, for the clients of all instances
``legacy.inbox``            notifications for one session, from all instances
``legacy.mailbox``          messages that arrive at one instance and are for another
``legacy.streamable_http``  Streamable HTTP,
``legacy.session_responder`` its responses to a POST
``legacy.http_sse``         HTTP+SSE
``legacy.session_channel``  stdio, and the messages of HTTP+SSE
``legacy.results``          the form of their results on all transports
==========================  ========================================================================
"""
