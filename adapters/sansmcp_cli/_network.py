"""Options for the way to a server: the proxy, and certificates."""

from __future__ import annotations

import argparse

from sansmcp_local import ConnectSettings

from ._output import Options


def add_network(parser: Options) -> None:
    """Add the options."""
    parser.add_argument(
        "--proxy",
        metavar="URL",
        help="connect to all hosts but this machine through this HTTP proxy, "
        "http://USER:PASSWORD@HOST:PORT (default: what the environment variables HTTPS_PROXY, "
        "HTTP_PROXY, ALL_PROXY and NO_PROXY say)",
    )
    parser.add_argument(
        "--ca",
        metavar="FILE",
        help="trust the authorities in this file, too, such as that of a company: certificates in "
        "PEM (default: those of the system, or of the environment variables SSL_CERT_FILE and "
        "SSL_CERT_DIR)",
    )
    parser.add_argument(
        "--cert",
        metavar="FILE",
        help="the certificate of this client with its key, in PEM, for servers that ask for one",
    )


def network_of(options: argparse.Namespace) -> ConnectSettings:
    """Return the settings that were given."""
    settings: ConnectSettings = {"ca_file": options.ca, "cert": options.cert}
    return settings if options.proxy is None else {**settings, "proxy": options.proxy}
