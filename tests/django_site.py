"""A site of Django with the usual middleware for pages of other origins, django-cors-headers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

ORIGIN = "https://app.example.com"
"""The origin whose pages may read the site."""
PAGE = "/page"
"""The path of a page of the site."""


def page(request: Any) -> Any:
    """Return the page."""
    return import_module("django.http").HttpResponse("a page of Django")


urlpatterns: list[Any] = []


def wsgi_site() -> Any:
    """Return the site as a WSGI application."""
    _set_up()
    return import_module("django.core.wsgi").get_wsgi_application()


def asgi_site() -> Any:
    """Return the site as an ASGI application."""
    _set_up()
    return import_module("django.core.asgi").get_asgi_application()


def _set_up() -> None:
    settings = import_module("django.conf").settings
    if not settings.configured:  # once in a process
        settings.configure(
            ALLOWED_HOSTS=["localhost", "127.0.0.1"],
            CORS_ALLOWED_ORIGINS=[ORIGIN],
            INSTALLED_APPS=["corsheaders"],
            MIDDLEWARE=["corsheaders.middleware.CorsMiddleware"],
            ROOT_URLCONF=__name__,
            SECRET_KEY="any",
        )
        urlpatterns.append(import_module("django.urls").path(PAGE.lstrip("/"), page))
