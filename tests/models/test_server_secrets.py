"""The API key is sent and never shown, URLs carry no passwords, and proxies are used as asked."""

import base64
import html
import json
import logging
import re
import traceback
import unicodedata
from collections.abc import Callable, Mapping
from html.entities import html5
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_server as hostile
from building import make_config
from evorun.errors import ConfigError, EngineError
from evorun.models.server.messages import Redactor
from hostile_server import ChatServer
from server_engine import KEY, REQUEST, closed_port, one_line_of, opened

IN_JSON = "".join(f"\\u{ord(character):04x}" for character in KEY)
"""The key as it may stand in JSON; slashes may be escaped too."""
WITH_SLASH = KEY.replace("/", "\\/")


def unescaped(text: str) -> str:
    """Undo the escapes of JSON and of URLs, however often a text was escaped."""
    for _ in range(4):
        text = re.sub(r"\\u00([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})", lambda code: chr(int(code[1] or code[2], 16)), text)
        text = re.sub(r"\\(.)", r"\1", text)
    return text


@pytest.mark.parametrize(
    "fault",
    [
        hostile.echo_headers,
        hostile.body(f'{{"choices": [{{"message": {{"content": "it is {IN_JSON}, or {WITH_SLASH}."}}}}]}}'.encode()),
        hostile.body(f'{{"choices": [{{"message": {{"refusal": "not {IN_JSON}"}}}}]}}'.encode()),
        hostile.body(f'{{"choices": [{{"message": {{"refusal": "not {WITH_SLASH}"}}}}]}}'.encode()),
        hostile.body(f'{{"choices": "{IN_JSON}"}}'.encode()),
        hostile.body(f'{{"choices": "{WITH_SLASH}", cut'.encode()),
        hostile.completion(finish_reason="abort", text=KEY),
        hostile.status(500, f'{{"error": {{"message": "{IN_JSON}"}}}}'),
        hostile.status(400, f'{{"error": {{"message": "{WITH_SLASH}"}}}}'),
        hostile.status(400, json.dumps({"error": json.dumps({"sent": f'{{"key": "{IN_JSON}{WITH_SLASH}"}}'})})),
        hostile.status(400, f'{{"error": "{IN_JSON}", cut'),
        hostile.status(400, f'{{"unknown": ["{WITH_SLASH}"]}}'),
        hostile.status(308, Location=f"http://elsewhere/{quote(KEY, safe='')}"),
        hostile.status(308, Location=f"http://me:{KEY}@elsewhere/"),
        hostile.raw(b"HTTP/9.9 what\r\n\r\n"),
        hostile.cut_mid_body,
        hostile.hang,
        hostile.body(f'{{"seen": "{KEY}"}}'.encode()),
        hostile.status(500, f"padding {'x' * 470} {KEY}"),
        hostile.completion(message={"refusal": f"no, not with {KEY}"}),
        hostile.status(400, f'{{"detail": "your key is {KEY}"}}'),
    ],
)
async def test_the_key_is_sent_and_never_shown(
    fault: hostile.Fault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("EVORUN_TEST_KEY", KEY)
    shown: list[str] = []
    causes: list[BaseException | None] = []
    options: dict[str, Any] = {"api_key_env": "EVORUN_TEST_KEY", "max_retries": 1, "timeout": 0.3, "max_outage": "0.05"}
    async with ChatServer(fault=fault) as server, opened(server, **options) as engine:
        try:
            shown.append(repr(await engine.complete(REQUEST)))
        except EngineError as error:
            shown += [repr(error), *traceback.format_exception(error)]
            causes = [error.__cause__, error.__context__]
        shown += [repr(engine), repr(engine._config), *(repr(r.__dict__) for r in caplog.records)]
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY[:12] not in unescaped("".join(shown))
    assert not any(causes)


@pytest.mark.parametrize("value", [KEY, "AIzaSyNotARealKey", "sk", ""])
def test_a_key_in_place_of_the_variables_name_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.api_key_env: expected the NAME") as error:
        make_config("engine", "server", api_key_env=value)
    assert not value or value not in str(error.value)


CREDENTIALS = [
    *("http://me:hunter2@host/v1", "http://host/v1?key=hunter2", "ftp://me:hunter2@host/v1", "me:hunter2@host/v1"),
    *(
        "http://me:hunter2/more@host/v1",
        "http://me:80/hunter2@host/v1",
        "http://me:hunter2#@host",
        "//me:hunter2?@host",
    ),
]


@pytest.mark.parametrize("url", CREDENTIALS)
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    for setting in ({"base_urls": [url]}, {"proxy": url}):
        with pytest.raises(ConfigError, match=r"engine\.(base_urls|proxy): expected") as error:
            make_config("engine", "server", **setting)
        assert "hunter2" not in str(error.value)


# --- proxies -------------------------------------------------------------------------------------------------------


NOWHERE = "http://nowhere.invalid:1/v1"


async def test_requests_go_through_the_proxy() -> None:
    async with ChatServer() as proxy, opened(NOWHERE, proxy=proxy.url.removesuffix("/v1")) as engine:
        assert (await engine.complete(REQUEST)).completions[0].text
    assert proxy.seen[0].headers["Host"] == "nowhere.invalid:1"


async def test_the_environments_proxy_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ChatServer() as proxy, ChatServer() as server:
        monkeypatch.setenv("http_proxy", f"me:hunter2@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "nowhere.invalid")
        async with opened(server) as engine:
            await engine.complete(REQUEST)
        assert (len(proxy.seen), len(server.seen)) == (0, 1)
        async with opened(server, proxy="environment") as engine:
            await engine.complete(REQUEST)
        assert (len(proxy.seen), len(server.seen)) == (1, 1)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with opened(server, proxy="environment") as engine:
            await engine.complete(REQUEST)
        assert (len(proxy.seen), len(server.seen)) == (1, 2)
    assert proxy.seen[0].headers["Proxy-Authorization"].startswith("Basic ")


async def test_a_proxy_that_refuses_is_one_line_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:hunter2@127.0.0.1:{closed_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(EngineError, match="unreachable") as error:
        async with opened(NOWHERE, proxy="environment"):
            pass
    assert "hunter2" not in one_line_of(error)
    refuses = ChatServer(fault=hostile.status(407))
    async with refuses as proxy, opened(NOWHERE, proxy=proxy.url.removesuffix("/v1")) as engine:
        with pytest.raises(EngineError, match=r"HTTP 407.*HTTPS_PROXY"):
            await engine.complete(REQUEST)


NAMES = {character: f"&{name}" for name, character in html5.items() if name.endswith(";")}

ESCAPES: Mapping[str, Callable[[str], str]] = {
    "json": lambda text: json.dumps(text)[1:-1],
    "json_code": lambda text: "".join(f"\\u{ord(character):04x}" for character in text),
    "python_code": lambda text: "".join(f"\\x{ord(character):02X}" for character in text),
    "javascript_code": lambda text: "".join(f"\\u{{{ord(character):x}}}" for character in text),
    "slashes": lambda text: text.replace("/", "\\/"),
    "url": lambda text: quote(text, safe=""),
    "url_code": lambda text: "".join(f"%{ord(character):02x}" for character in text),
    "html": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "html_unended": lambda text: "".join(f"&#{ord(character)}" for character in text),
    "html_unended_hexadecimal": lambda text: "".join(f"&#x{ord(character):x}" for character in text),
    "html_markup": html.escape,
    "html_markup_unended": lambda text: text.replace("&", "&amp"),
    "html_names": lambda text: "".join(NAMES.get(character, character) for character in text),
    "octal_code": lambda text: "".join(f"\\{ord(character):03o}" for character in text),
    "short_octal_code": lambda text: "".join(
        f"\\{ord(character):o}" if 32 <= ord(character) < 64 else character for character in text
    ),
    "python_names": lambda text: "".join(f"\\N{{{unicodedata.name(character)}}}" for character in text),
    "javascript_escape": lambda text: "".join(f"%u{ord(character):04X}" for character in text),
}


@given(
    escapes=st.lists(st.sampled_from(sorted(ESCAPES)), max_size=3),
    begin=st.integers(0, len(KEY)),
    rest=st.sampled_from(("", r" of \frac{1}{2}", " at 20%", "&")),
)
def test_a_key_is_hidden_however_often_it_is_escaped(escapes: list[str], begin: int, rest: str) -> None:
    written = KEY[begin:]
    for escape in escapes:
        written = ESCAPES[escape](written)
    shown = Redactor(KEY).text(f"the key is {KEY[:begin]}{written}{rest}")
    assert re.sub(r"\\+\*", "*", shown) == f"the key is ***{rest}"


@pytest.mark.parametrize(
    "text",
    [
        r"\underline{x} \xi \%20 &#45; %2D",
        r"\N{NOTHING} &nothing; \055 &fjlig; \N{}",
        "c2stbm90",
        r"\u002d \\u002d %",
        "sk-live",
        "\\" * 9,
        "%25" * 9,
    ],
)
def test_a_text_without_the_key_stays_as_it_is(text: str) -> None:
    assert Redactor(KEY).text(text) == text


@pytest.mark.parametrize(
    "text", ["&#115&#107-live", "&#x73&#x6b-live", "&#38#115k-live", "&amp#115k-live", "s&#107-live"]
)
def test_entities_without_a_semicolon_are_undone_as_html_does(text: str) -> None:
    read = text
    while "&" in read:
        read = html.unescape(read)
    assert read == "sk-live"
    assert Redactor("sk-live").text(f"key: {text}.") == "key: ***."


@pytest.mark.sample(3)
@pytest.mark.parametrize("secret", [KEY, "hunter2", "s3cr3"])
@pytest.mark.parametrize("outer", [base64.b64encode, base64.urlsafe_b64encode])
@given(before=st.binary(max_size=4), after=st.binary(max_size=4), around=st.text("ab", max_size=4))
def test_a_key_within_base64_of_base64_is_hidden(
    outer: Callable[[bytes], bytes], secret: str, before: bytes, after: bytes, around: str
) -> None:
    once = base64.b64encode(before + secret.encode() + after)
    twice = outer(around.encode() + once + around.encode()).decode()
    for written in (once.decode(), twice):
        shown = Redactor(secret).text(f"<{written}>")
        assert "***" in shown
        assert len(shown) < len(written) - len(secret) + 3 + 2


@pytest.mark.parametrize("alphabet", [b"+/", b"-_"])
@given(
    before=st.binary(max_size=9),
    after=st.binary(max_size=9),
    escapes=st.lists(st.sampled_from(sorted(ESCAPES)), max_size=1),
)
def test_a_key_within_base64_is_hidden(alphabet: bytes, before: bytes, after: bytes, escapes: list[str]) -> None:
    written = base64.b64encode(before + KEY.encode() + after, alphabet).decode()
    for escape in escapes:
        written = ESCAPES[escape](written)
    shown = Redactor(KEY).text(f"Authorization: {written}, again")
    assert shown.startswith("Authorization: ")
    assert shown.endswith(", again")
    left, hidden, right = shown.removeprefix("Authorization: ").removesuffix(", again").partition("***")
    assert hidden
    if not escapes:
        # Hardly more than what stood around it: the first and last characters of a group hold bits of both
        assert len(left + right) <= 4 * (len(before + after) // 3 + 2)
        assert base64.b64decode(left[: len(left) // 4 * 4], alphabet) == before[: len(left) // 4 * 3]


def test_basic_authorization_and_wrapped_lines_are_hidden() -> None:
    for said in (f"Bearer {KEY}", f"me:{KEY}", KEY):
        encoded = base64.b64encode(said.encode()).decode()
        wrapped = "\n".join(encoded[at : at + 20] for at in range(0, len(encoded), 20))
        for written in (encoded, wrapped, json.dumps(encoded), base64.urlsafe_b64encode(said.encode()).decode()):
            shown = Redactor(KEY).text(written)
            assert "***" in shown
            assert len(shown) < len(written) - len(KEY)


DEEP = ["&" + "amp;" * 2**15, "\\" + "134" * 2**15, "%" + "25" * 2**16, "\\" * 2**18]


@pytest.mark.timeout(600)  # a pass for each level would take hours
@pytest.mark.parametrize("nested", [*DEEP[:2], *(pytest.param(text, marks=pytest.mark.nightly) for text in DEEP[2:])])
def test_escapes_are_undone_however_deep(nested: str) -> None:
    rest = {"%": "2d", "&": "#45;", "\\": "055"}[nested[0]]
    head, _, tail = KEY.partition("-")
    assert set(Redactor(KEY).text(head + nested + rest + tail).strip("\\")) == {"*"}
    other = head + nested
    assert Redactor(KEY).text(other) == other


@pytest.mark.sample(2)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["&a", "&#", "\\N{A", "\\N{}", "%u", "c", "c2\n", "\\", "s\\", "&amp"])
def test_hostile_texts_without_a_key_stay_as_they_are(part: str) -> None:
    text = part * (2**18 // len(part))
    assert Redactor(KEY).text(text) == text
