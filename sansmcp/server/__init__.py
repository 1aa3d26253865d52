"""The server machine: HTTP requests in, calls out; responses of calls in, HTTP responses out.

==========================  ========================================================================
``server``                  the machine: parts in, effects and events out, time
``options``                 its settings
``validation``              the validators of every HTTP request
``era_choice``              the choice between 2026-07-28 and the handshake revisions
``refusals``                every refusal, as a table
``challenges``              the refusals that tell clients to get an access token
``resource_metadata``       the document that tells them where
``cors``                    the headers by which browsers give responses to pages of other origins
``scope_checks``            the scopes that requests need
``dpop_checks``             proofs that the client has the key of its access token
``accepted_proofs``         the names of those that were accepted, so that each is good for once
``admission`` ``addresses`` the rate limit, and the addresses that it counts
``exchange``                one HTTP request and its HTTP response
``bursts``                  events that leave together, and are appended together
``channel``                 a message stream each way: stdio or HTTP+SSE
``stdio``                   the bytes of stdio
``core``                    the state that the parts share: settings, queues, timers
``calls`` ``responder``     a running call, and how its response is sent
``unstored_responder``      responses of which nothing is stored, those to calls with keys included
``keyed_calls``             calls that outlive their connections, by the keys of their clients
``shared_keys``             the same in a store, so that any instance serves the rest of a call
``input_checks``            which input requests are allowed, and which capabilities they need
``logs``                    the logs in the store: operations in flight, and watched logs
``procedures``              what takes several messages with the store, as generators
``records``                 records in the store, also of a later version
``leases``                  how instances notice that another one has died
``store_calls``             calling a store for an effect, and judging what it returns
``health``                  the health answer for load balancers
``store_health``            whether the store works at present
--------------------------  ------------------------------------------------------------------------
``modern.era``              the messages of 2026-07-28: their validators and meaning
``modern.stateless``        their transports: HTTP and stdio
``modern.results``          the form of their results, and input requests in them
``modern.subscriptions``    subscriptions to changes
``modern.task_table``       which calls become tasks, and which tasks run here
``modern.running_task``     a task whose handler runs here: its log, and the responder of its call
``modern.task_record``      the state of a task, as the store keeps it and clients get it
``modern.task_operation``   reading and changing the state of a task, from any instance
``modern.task_requests``    tasks/get, tasks/update, tasks/cancel
``modern.task_listening``   status notifications
--------------------------  ------------------------------------------------------------------------
``legacy.era``              the handshake revisions: entry point of the parts below
``legacy.session_validation`` the validators of their HTTP requests
``legacy.dispatcher``       the meaning of their messages
``legacy.sessions``         sessions
``legacy.session_records``  sessions in the store, for other instances
``legacy.streams``          logs and their readers: resumption and polling
``legacy.stream_table``     the streams of an instance
``legacy.writers``          the streams of an instance that has died
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
