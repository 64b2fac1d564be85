"""A consumer like a serverless function: woken by a POST, it reads what is new and is done."""

import hmac
import json
import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PORT = int(os.environ.get("PORT", "3001"))
SECRET = os.environ.get("WEBHOOK_SECRET", "").encode()
SERVER = os.environ.get("REVEILLE_URL", "http://127.0.0.1:4437")
SIGNATURE_AGE_MAX_S = 300
ANSWER_MAX_S = 30
RETRY_S = 0.2

if not SECRET:
    print(
        "WEBHOOK_SECRET is not set; set it to the webhook_secret that was shown when the"
        " subscription was made",
        file=sys.stderr,
    )
    sys.exit(2)

# How far each stream was processed here. A real agent keeps this where it keeps its results.
processed: dict[str, str] = {}
locks: dict[str, Lock] = {}


def handle(path: str, event: object) -> None:  # A line in one piece: wakes run side by side.
    print(json.dumps({"path": path, "event": event}) + "\n", end="", flush=True)


def is_signed(header: str, body: bytes) -> bool:
    # While one secret takes over from another there are two signatures: one is enough.
    match = re.fullmatch(r"t=(\d+)((?:,sha256=[0-9a-f]{64})+)", header)
    if not match or abs(time.time() - int(match[1])) > SIGNATURE_AGE_MAX_S:
        return False
    expected = hmac.digest(SECRET, f"{match[1]}.".encode() + body, "sha256")
    signatures = re.findall("[0-9a-f]{64}", match[2])
    return any([hmac.compare_digest(bytes.fromhex(it), expected) for it in signatures])


def ask(request: Request) -> tuple[bytes, dict]:
    """Whatever fails for a while is tried again: callbacks and reads may be repeated at will."""
    while True:
        try:
            with urlopen(request, timeout=ANSWER_MAX_S) as answer:
                return answer.read(), answer.headers
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code == 404:
                return b"[]", {}  # One may follow a stream before it is made.
            if isinstance(error, HTTPError) and error.code < 500:
                raise
        time.sleep(RETRY_S)


def wake(notice: dict) -> None:
    def call(**body: object) -> dict:
        headers = {"content-type": "application/json", "authorization": f"Bearer {notice['token']}"}
        text = json.dumps({"epoch": notice["epoch"], **body}).encode()
        # A stale epoch or a claim that came too late raises: another wake has the work.
        return json.loads(ask(Request(notice["callback"], text, headers))[0])

    # The first callback claims the wake. Following a stream twice changes nothing.
    tools = re.sub("^/python-agents/", "/python-tools/", notice["primary_stream"])
    streams = call(wake_id=notice["wake_id"], subscribe=[tools])["streams"]
    with ThreadPoolExecutor() as pool:
        acks = list(pool.map(lambda it: read(it["path"], it["offset"]), streams))
    # What came in after the read is still pending: reveille wakes us again for it.
    call(acks=[ack for ack in acks if ack["offset"] != "-1"], done=True)


def read(path: str, offset: str) -> dict:
    """Processes what a stream holds behind the offset; delivery is at least once, this is once."""
    with locks.setdefault(path, Lock()):
        # Offsets are made to be compared as text; "-1" is before all of them.
        offset = max(offset, processed.get(path, "-1"))
        while True:
            body, headers = ask(Request(f"{SERVER}{path}?offset={offset}"))
            for event in json.loads(body):
                handle(path, event)
            offset = processed[path] = headers.get("stream-next-offset", offset)
            if headers.get("stream-up-to-date", "true") == "true":
                return {"path": path, "offset": offset}


class Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if not is_signed(self.headers["webhook-signature"] or "", body):
            return self.send_error(401)
        try:
            wake(json.loads(body))
            self.send_response(200)
            self.end_headers()
        except HTTPError as error:
            self.send_error(500, explain=error.read().decode())


with ThreadingHTTPServer(("127.0.0.1", PORT), Agent) as server:
    print(f"listening on {server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()
