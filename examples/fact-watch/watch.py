"""An agent that is woken for what is said in a garden, for as long as it belongs there."""

import hmac
import json
import os
import re
import sys
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PORT = int(os.environ.get("PORT", "3004"))
SECRET = os.environ.get("WEBHOOK_SECRET", "").encode()
SERVER = os.environ.get("REVEILLE_URL", "http://127.0.0.1:4437")
KEY = os.environ.get("REVEILLE_KEY", "")
AGENT = os.environ.get("AGENT_ID", "0f8fad5b-d9cb-469f-a165-70867728950e")
GARDEN = os.environ.get("GARDEN", "atlas")
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

# What was read here: by subscription, its last event. A real agent keeps this with what it learns.
last: dict[str, str] = {}
lock = Lock()


def is_signed(header: str, body: bytes) -> bool:
    # While one secret takes over from another there are two signatures: one is enough.
    match = re.fullmatch(r"t=(\d+)((?:,sha256=[0-9a-f]{64})+)", header)
    if not match or abs(time.time() - int(match[1])) > SIGNATURE_AGE_MAX_S:
        return False
    expected = hmac.digest(SECRET, f"{match[1]}.".encode() + body, "sha256").hex()
    return any([hmac.compare_digest(it, expected) for it in re.findall("[0-9a-f]{64}", match[2])])


def call(url: str, body: "dict | None" = None, token: str = KEY) -> tuple[object, dict]:
    """Whatever fails for a while is tried again: all of these may be repeated at will."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    request = Request(url, body and json.dumps(body).encode(), headers)
    while True:
        try:
            with urlopen(request, timeout=ANSWER_MAX_S) as answer:
                return json.loads(answer.read()), answer.headers
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code < 500:
                raise
        time.sleep(RETRY_S)


def wake(notice: dict) -> None:
    def callback(**body: object) -> dict:
        return call(notice["callback"], {"epoch": notice["epoch"], **body}, notice["token"])[0]

    # The first callback claims the wake; one that came too late raises, and another has the work.
    [stream] = callback(wake_id=notice["wake_id"])["streams"]
    path, offset = stream["path"], stream["offset"]
    notes, headers = call(f"{SERVER}{path}?offset={offset}")
    for subscription in {note["subscription_id"] for note in notes}:
        read(subscription)
    callback(acks=[{"path": path, "offset": headers["stream-next-offset"]}], done=True)


def read(subscription: str) -> None:
    """Asks for what is new. A note names events; what they say is told to those who still may know."""
    with lock:  # Wakes are delivered at least once; what was read is skipped.
        while True:
            after = f"?after={last[subscription]}" if subscription in last else ""
            try:
                page, _ = call(f"{SERVER}/v1/subscriptions/{subscription}/events{after}")
            except HTTPError as error:
                if error.code != 404:
                    raise
                if last.pop(subscription, None) is None:
                    return  # It was ended, and its notes were left.
                continue  # What was read last is too old to begin after, and so is all before it.
            for event in page["events"]:
                last[subscription] = event["event_id"]
                fact = event["payload"]  # Nothing is in it if the subscription was cancelled.
                shown = {"event": event["event_type"], "fact": event["fact_id"]}
                shown |= {name: fact.get(name) for name in ("entity", "relation", "value")}
                print(json.dumps(shown) + "\n", end="", flush=True)
            if not page["has_more"]:
                return


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
    # The same again is the same subscription; whoever does not belong to the garden is refused.
    wanted = {"target": f"scope:garden:{GARDEN}", "on_change": "wake", "wake_agent_id": AGENT}
    try:
        call(f"{SERVER}/v1/subscriptions", wanted)
    except HTTPError as error:
        sys.exit(json.load(error)["error"]["message"])
    print(f"listening on {server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()
