"""A language model behind an OpenAI-compatible server (vLLM, Ollama, llama.cpp and the like).

The key comes from the environment and goes nowhere but into the request's header. Requests that fail for a while
are sent again, later each time; those that cannot succeed end the run with what to do.
"""

import email.utils
import hashlib
import http.client
import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, NoReturn

from embedtrain.errors import EmbedtrainError, UsageError, first_three
from embedtrain.harvest.generated.replies import Reply

KEYS = ("EMBEDTRAIN_API_KEY", "OPENAI_API_KEY")

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_TRIES = 8  # 0.5 + 1 + ... + 32 s: longer than the minute by which most servers count their limits
_TRIES_OF_SLOW = 3  # each of them waited for the whole timeout
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_LONGEST_ASKED_WAIT = 600.0  # a server that asks for more has a limit of a day, not of a minute
_TOO_LONG = ("context length", "context size", "context window", "maximum context", "too long", "too many tokens")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_AGAIN = "replies that came are kept: the same command goes on from there"


def key_from_environment() -> str | None:
    """The key of the server, from the first variable of `KEYS` that is set. UsageError for what cannot be one."""
    for name in KEYS:
        if key := os.environ.get(name, "").strip():
            if not (key.isascii() and key.isprintable()) or " " in key:  # it is not shown: most of it may be a key
                raise UsageError(
                    f"{name} holds a character that stands in no key (a blank, a line end); set it again"
                )
            return key
    return None


def base_of(url: str) -> str:
    """The URL in front of /chat/completions. Raises UsageError for one that is none or that carries a secret."""
    try:
        parts = urllib.parse.urlsplit(url)
        whole = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        whole = False
    if not whole or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"--generate {url}: an address as http://localhost:8000/v1 is needed")
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"--generate: the address of {parts.hostname} carries a user name or parameters, which would be "
            f"written down with it; give it without them and the key in {KEYS[0]}"
        )
    return url.partition("#")[0].rstrip("/").removesuffix("/chat/completions").rstrip("/")


class _Passing(Exception):
    """What may be over when it is tried again; `after` is what the server asks to wait, in seconds."""

    def __init__(self, why: str, *, after: float = 0.0, tries: int = _TRIES) -> None:
        super().__init__(why)
        self.after = after
        self.tries = tries


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # The library would repeat the request without its body, and with the key, wherever it is sent to.
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def retry_after(value: str | None, now: float) -> float:
    """Seconds to wait by a Retry-After header (RFC 9110, 10.2.3: seconds or a date); 0 where it says nothing."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return 0.0


def waiting_time(attempt: int, prompt: str, first: float = _FIRST_WAIT) -> float:
    """Seconds after attempt 1, 2, ...: doubled each time, and up to a quarter more to part the workers."""
    share = hashlib.sha256(f"{attempt}\0{prompt}".encode("utf-8", "surrogatepass")).digest()[0] / 255
    return min(_LONGEST_WAIT, first * 2.0 ** (attempt - 1)) * (1 + share / 4)


class Endpoint:
    """A model of a server. Its `identity` is its name alone: the same model elsewhere gives the same replies."""

    def __init__(
        self,
        base: str,
        model: str,
        *,
        temperature: float,
        seed: int,
        max_tokens: int,
        workers: int = 4,
        timeout: float = 120.0,
        first_wait: float = _FIRST_WAIT,
    ) -> None:
        """`model` "": the only one the server has. Raises UsageError where it has several, or says none."""
        self._base = base_of(base)
        self._key = key_from_environment()
        self._workers, self._timeout, self._first_wait = workers, timeout, first_wait
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if urllib.parse.urlsplit(self._base).hostname in _LOCAL:
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy elsewhere has another localhost
        self._opener = urllib.request.build_opener(*handlers)
        self._stop = threading.Event()
        self._answered = False
        self.name = model or self._only_model()
        self.settings: Mapping[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self.identity: Mapping[str, Any] = {"model": self.name}

    def replies(self, prompts: Sequence[str], wanted: int) -> Iterator[tuple[int, Reply]]:
        """(place of the prompt, reply) as they come, which is in no order; one request a prompt.

        Where a request fails for good, those under way are waited for and given first. Raises EmbedtrainError with
        what to do.
        """
        self._stop.clear()
        failure: EmbedtrainError | None = None
        rest = iter(enumerate(prompts))
        waiting: dict[Future[Reply], int] = {}
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                while True:
                    while failure is None and len(waiting) < 2 * self._workers and (item := next(rest, None)):
                        waiting[pool.submit(self._ask, item[1])] = item[0]
                    if not waiting:
                        break
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        place = waiting.pop(future)
                        try:
                            reply = future.result()
                        except CancelledError:
                            continue
                        except EmbedtrainError as error:
                            failure = failure or error
                            self._stop.set()
                            for other in waiting:
                                other.cancel()
                        else:
                            yield place, reply
            finally:
                self._stop.set()
                for future in waiting:
                    future.cancel()
        if failure:
            raise failure

    def _ask(self, prompt: str) -> Reply:
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            **self.settings,
            "stream": False,
        }
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = self._once(body)
            except _Passing as error:
                if attempt >= error.tries:
                    raise EmbedtrainError(f"{self._base}: {error}, {attempt} times in a row; {_AGAIN}") from error
                seconds = max(error.after, waiting_time(attempt, prompt, self._first_wait))
                if self._stop.wait(seconds):
                    raise EmbedtrainError(f"{self._base}: {error}; {_AGAIN}") from error
            else:
                self._answered = True
                return reply

    def _once(self, body: dict[str, Any]) -> Reply:
        try:
            answer = self._send("/chat/completions", body, self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                said = _said(error, self._key)
                if error.code in (400, 413, 422) and (
                    error.code == 413 or any(words in said.lower() for words in _TOO_LONG)
                ):
                    return Reply("", "too long")
                self._refuse(error, said)
        except (OSError, http.client.HTTPException) as error:
            self._unreached(error)
        try:
            return _read(json.loads(answer))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            shown = " ".join(answer[:80].decode("utf-8", "replace").split())
            why = f"what came back is no chat completion ({shown!r})"
            raise _Passing(f"{why}; see that the address is that of the API", tries=_TRIES_OF_SLOW) from error

    def _send(self, path: str, body: dict[str, Any] | None, timeout: float) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "embedtrain"}
        request = urllib.request.Request(self._base + path, data, headers)
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        with self._opener.open(request, timeout=timeout) as response:
            return bytes(response.read())

    def _refuse(self, error: urllib.error.HTTPError, said: str) -> NoReturn:
        """Raise what an HTTP status means."""
        code = error.code
        if code in (401, 403):
            known = f"refuses the key of {' or '.join(KEYS)}" if self._key else f"wants a key: set {KEYS[0]}"
            raise EmbedtrainError(f"{self._base} {known} (HTTP {code}); see that it is the key of this server")
        if code == 402 or "insufficient_quota" in said:
            raise EmbedtrainError(f"{self._base}: the account has no credit left (HTTP {code}: {said}); {_AGAIN}")
        if code == 404:
            names = self._models()
            if names and self.name not in names:
                raise EmbedtrainError(
                    f"{self._base} has no model {self.name!r}; it has {first_three(names)}: choose with "
                    "--generate-model"
                )
            raise EmbedtrainError(
                f"{self._base}/chat/completions is not there, or the server has no model {self.name!r} (HTTP 404: "
                f"{said}); most addresses end in /v1, and Ollama wants the model pulled first"
            )
        if 300 <= code < 400:
            target = error.headers.get("Location", "?")
            raise EmbedtrainError(
                f"{self._base} sends requests on to {target}; give the address that answers itself"
            )
        if code not in _PASSING:
            raise EmbedtrainError(
                f"{self._base} refuses the request (HTTP {code}: {said}); mend the flags it speaks of"
            )
        after = retry_after(error.headers.get("Retry-After"), time.time())
        if after > _LONGEST_ASKED_WAIT:
            raise EmbedtrainError(
                f"{self._base} asks to come back in {after:,.0f} seconds (HTTP {code}); {_AGAIN}"
            )
        raise _Passing(f"HTTP {code} ({said})" if said else f"HTTP {code}", after=after)

    def _unreached(self, error: OSError | http.client.HTTPException) -> NoReturn:
        """Raise what a broken connection means."""
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            raise _Passing(
                f"no answer within {self._timeout:g} seconds (give more with --generate-timeout, or fewer "
                "--generate-workers)",
                tries=_TRIES_OF_SLOW,
            ) from error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise EmbedtrainError(f"{self._base}: {reason}; name its authority in SSL_CERT_FILE") from error
        if isinstance(reason, OSError) and not isinstance(reason, ConnectionResetError) and not self._answered:
            raise EmbedtrainError(
                f"{self._base} cannot be reached ({reason.strerror or reason}); start the server, or mend the "
                "address of --generate"
            ) from error
        shown = str(reason) or type(reason).__name__
        raise _Passing(f"the connection broke ({shown})") from error

    def _models(self) -> list[str]:
        """The models the server says it has; empty where it does not say."""
        try:
            listed = json.loads(self._send("/models", None, min(self._timeout, 10.0)))
            return [str(model["id"]) for model in listed["data"]]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return []

    def _only_model(self) -> str:
        names = self._models()
        if len(names) == 1:
            return names[0]
        has = f"it has {first_three(names)}" if names else "it does not say which it has, or cannot be reached"
        raise UsageError(
            f"--generate {self._base} needs the name of a model; {has}: give it with --generate-model"
        )


def _said(error: urllib.error.HTTPError, key: str | None) -> str:
    """What a server says of an error, in one line of at most 200 characters, without the key."""
    try:
        text = error.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        found = json.loads(text)
        found = found.get("error", found)
        text = found if isinstance(found, str) else f"{found.get('message', text)} {found.get('code') or ''}"
    except (ValueError, AttributeError):
        pass
    line = " ".join(text.replace(key, "***").split() if key else text.split())
    return line if len(line) <= 200 else f"{line[:197]}..."


def _read(answer: Any) -> Reply:
    """The reply in a chat completion. Raises KeyError, TypeError and the like where it is none."""
    choice = answer["choices"][0]
    content = choice["message"].get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    usage = answer.get("usage") or {}
    tokens = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    counts = [count if isinstance(count, int) else None for count in tokens]
    return Reply(str(content), "length" if choice.get("finish_reason") == "length" else "stop", *counts)
