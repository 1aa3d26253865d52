"""The client half of OAuth 2.1, without I/O: HTTP message parts in, effects and events out.

``flow`` is what the client talks to. What takes more than one request is a generator, which yields
what it waits for: see ``steps``. The other modules have functions, each of one thought.

======================  ============================================================================
``flow``                decides when a flow is needed; the headers that authorize requests
``runner``              runs one generator: requests, effects, logins, deadlines
``steps``               what generators yield, and what a flow wants of the client
----------------------  ----------------------------------------------------------------------------
``obtaining``           from a refusal, or from the start, to a token
``discovery``           finds the metadata of the MCP server and its authorization server
``client_choice``       chooses a client or registers one
``grants``              a login, client credentials, assertions: each ends with a token
``refresh``             a refresh, and a logout
``token_requests``      requests to token endpoints, authenticated as each server accepts it
``stored_credentials``  the credentials in use, their copy in the storage, and its lock
``reach``               HTTP requests, to addresses no nearer than the MCP server
``signatures``          DPoP proofs with nonces, client assertions
----------------------  ----------------------------------------------------------------------------
``callbacks``           the requests of a browser after a login, to a listener on this machine
``challenges``          ``WWW-Authenticate``
``clients``             what an authorization server knows of a client; its registration
``codes``               the authorization request, and its redirect
``http``                one request of a flow, and its response
``metadata``            documents of resources and authorization servers
``options``             the settings
``proofs``              headers and claims of what is signed
``saved``               the stored document
``scopes``              which scopes to request
``step_ups``            how often a request was sent, and how far its scopes were stepped up
``tokens``              token requests and responses, tokens
``urls``                where documents are, and which URLs are safe
======================  ============================================================================
"""
