"""A small OpenAI-compatible server, as a process of its own: `python completion_server.py` prints its port.

What it answers follows from the request alone: as many numbered questions as the prompt asks for, made of the
words behind "Document:". The name of the model says how the request goes: see `_TROUBLE` and `Handler.do_POST`.
`GET /log` gives all requests for completions so far, `GET /reset` forgets them.
"""

import hashlib
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sesame-0123456789"
# The first requests of each prompt fail so, and the next one does not: model -> statuses.
_TROUBLE = {
    "limited": [429, 429],
    "flaky": [500, 503],
    "broken": ["broken"],
    "truncated": ["cut"],
    "reset": ["close"],
}
# Every request fails so: model -> (status, headers, body).
_ALWAYS: dict[str, tuple[int, dict[str, str], str]] = {
    "down": (500, {}, '{"error": {"message": "out of memory"}}'),
    "tomorrow": (429, {"Retry-After": "86400"}, '{"error": {"message": "a limit of the day"}}'),
    "poor": (429, {}, '{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'),
    "odd": (400, {}, '{"error": {"message": "temperature is not known here"}}'),
    "echo": (400, {}, f'{{"error": {{"message": "what is {KEY}?"}}}}'),
    "moved": (307, {"Location": "http://elsewhere.example/v1"}, ""),
    "page": (200, {}, "<html><body>Welcome to nginx</body></html>"),
}
_UNFIT = '{"error": {"message": "This model\'s maximum context length is 4096 tokens", "code": "too_long"}}'


def reply_to(prompt: str) -> str:
    """An opening line and `exactly N` questions of three words of the document each."""
    wanted = int((re.search(r"exactly (\d+)", prompt) or ["", "1"])[1])
    words = re.findall(r"\w+", prompt.partition("Document:")[2]) or ["nothing"]
    first = hashlib.sha256(prompt.encode()).digest()[0]
    lines = [f"Here are {wanted} questions:"]
    for number in range(1, wanted + 1):
        chosen = [words[(first + 3 * number + step) % len(words)] for step in range(3)]
        lines.append(f"{number}. Why is {' '.join(chosen)} number {number}?")
    return "\n".join(lines)


class Server(ThreadingHTTPServer):
    """What the server remembers."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.log: list[dict[str, Any]] = []
        self.tries: dict[tuple[str, str], int] = {}

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away: some are killed, some do not wait."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _send(self, status: int, body: str, headers: dict[str, str] | None = None, missing: int = 0) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + missing))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def do_GET(self) -> None:
        """The log, and the models: `/v1` has several, `/one/v1` one, `/none` none that it says."""
        with self.server.lock:
            if self.path == "/log":
                self._send(200, json.dumps(self.server.log))
            elif self.path == "/reset":
                self.server.log.clear()
                self.server.tries.clear()
                self._send(200, "{}")
            elif self.path in ("/v1/models", "/one/v1/models"):
                names = ["list"] if self.path.startswith("/one") else ["list", "limited", "flaky", "locked"]
                self._send(200, json.dumps({"object": "list", "data": [{"id": name} for name in names]}))
            else:
                self._send(404, '{"detail": "Not Found"}')

    def do_POST(self) -> None:
        """A completion, in the way the name of the model asks for."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, prompt = body["model"], body["messages"][-1]["content"]
        with self.server.lock:
            tries = self.server.tries.get((model, prompt), 0)
            self.server.tries[model, prompt] = tries + 1
            told = {name: body.get(name) for name in ("model", "temperature", "seed", "max_tokens")}
            sent = self.headers.get("Authorization")
            self.server.log.append({"prompt": prompt, "key": sent, "at": time.monotonic(), **told})
        trouble = _TROUBLE.get(model, [])[tries : tries + 1]
        if not self.path.endswith("/v1/chat/completions"):
            self._send(404, '{"detail": "Not Found"}')
        elif model == "gone":
            self._send(404, '{"error": {"message": "The model `gone` does not exist."}}')
        elif model == "locked" and sent != f"Bearer {KEY}":
            self._send(401, f'{{"error": {{"message": "Incorrect API key provided: {sent}"}}}}')
        elif model in _ALWAYS:
            status, headers, text = _ALWAYS[model]
            self._send(status, text, headers)
        elif model == "narrow" and len(prompt) > 2000:
            self._send(400, _UNFIT)
        elif trouble == ["close"]:
            self.close_connection = True
        elif trouble == ["broken"]:
            self._send(200, '{"choices": [{"mess')
        elif trouble and isinstance(trouble[0], int):
            self._send(trouble[0], '{"error": "later"}', {"Retry-After": "0.4"} if trouble == [429] else {})
        else:
            self._complete(model, prompt, missing=40 if trouble == ["cut"] else 0)

    def _complete(self, model: str, prompt: str, missing: int) -> None:
        if model == "slow":
            time.sleep(0.1)
        elif model == "uneven":  # the first come last
            time.sleep(hashlib.sha256(prompt.encode()).digest()[1] / 2000)
        elif model == "sleepy":
            time.sleep(3)
        text: Any = reply_to(prompt)
        if model == "parts":
            text = [{"type": "text", "text": text}]
        message = {"role": "assistant", "content": None if model == "mute" else text}
        finish = "length" if model == "cut" else "stop"
        answer: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
        if model != "uncounted":
            answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        self._send(200, json.dumps(answer), missing=missing)


if __name__ == "__main__":
    server = Server()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
