"""Addresses of servers in configurations and messages."""

from urllib.parse import urlsplit

from evorun.errors import ConfigError


def checked_url(key: str, text: str) -> str:
    """Return the URL that a config key holds, without a slash at its end.

    Raises ConfigError when it is not a plain http(s) URL.
    """
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{key}: expected http(s)://host[:port]/path, got '{without_credentials(text)}'")
    # The config is copied into every run directory, and credentials would be with it. Any @: passwords may hold a /.
    if "@" in text or url.query or url.fragment:
        raise ConfigError(
            f"{key}: expected a URL without user, password, query or fragment, got one for host "
            f"'{without_credentials(text)}' that has them; keys come from the variable that engine.api_key_env names"
        )
    return text.rstrip("/")


def without_credentials(url: str) -> str:
    """Return a URL for messages: without query and fragment, and from its host on where it names a user."""
    # The last @, and before ? and # are looked for: passwords may hold any of these unescaped.
    return url.rpartition("@")[2].partition("?")[0].partition("#")[0]
