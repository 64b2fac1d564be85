"""Two triggers on orders: one reserves stock and writes that back, one ships what is reserved."""

import hmac
import json
import os
import re
import sys
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PORT = int(os.environ.get("PORT", "3003"))
SECRET = os.environ.get("TRIGGER_SECRET", "").encode()
SERVER = os.environ.get("REVEILLE_URL", "http://127.0.0.1:4437")
SIGNATURE_AGE_MAX_S = 300
ANSWER_MAX_S = 4  # Less than the `timeout` of a trigger, which is 5 s.

if not SECRET:
    print("TRIGGER_SECRET is not set; set it to what `reveille secret create` prints", file=sys.stderr)
    sys.exit(2)

# What was shipped here. A real shipper keeps this where it keeps its parcels.
shipped: set[str] = set()


def is_signed(header: str, body: bytes) -> bool:
    # While one secret takes over from another there are two signatures: one is enough.
    match = re.fullmatch(r"t=(\d+)((?:,v1=[0-9a-f]{64})+)", header)
    if not match or abs(time.time() - int(match[1])) > SIGNATURE_AGE_MAX_S:
        return False
    expected = hmac.digest(SECRET, f"{match[1]}.".encode() + body, "sha256").hex()
    return any([hmac.compare_digest(it, expected) for it in re.findall("v1=([0-9a-f]{64})", match[2])])


def call(change: dict, what: str, body: dict) -> dict:
    """Reads and writes documents with the token that came with the change."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {change['systemToken']}"}
    request = Request(f"{SERVER}/api/v1/trigger/{what}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=ANSWER_MAX_S) as answer:
        return json.loads(answer.read())


def reserve(change: dict, key: str) -> None:
    """Takes an order's items from the stock: both are written, or neither is."""
    order, item = change["path"], f"stock/{change['after']['item']}"
    while True:
        now, stock = call(change, "get", {"paths": [order, item]})["documents"]
        if now.get("version") != change["after"]["version"]:
            return  # It was done before: deliveries are made at least once.
        left = stock.get("left", 0) - now["quantity"]
        ops = [{"type": "update", "path": order, "ifMatchVersion": now["version"]}]
        ops[0]["data"] = {"state": "refused" if left < 0 else "reserved"}
        if left >= 0:
            taken = {"type": "update", "path": item, "ifMatchVersion": stock["version"]}
            ops.append(taken | {"data": {"left": left}})
        try:
            # What is sent again counts once; after another order was faster, it is another write.
            call(change, "write", {"ops": ops, "idempotencyKey": f"{key}:{stock.get('version', 0)}"})
            return
        except HTTPError as error:
            if error.code != 412:
                raise


def ship(change: dict, key: str) -> None:
    if key not in shipped:
        shipped.add(key)
        print(json.dumps({"shipped": change["id"], "item": change["after"]["item"]}) + "\n", end="", flush=True)


class Flow(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if not is_signed(self.headers["x-syntrix-signature"] or "", body):
            return self.answer(401)
        change = json.loads(body)
        step = {"/reserve": reserve, "/ship": ship}.get(self.path)
        if step is None or change.get("test"):  # A test asks whether anybody is here.
            return self.answer(200 if step else 404)
        try:
            step(change, self.headers["x-syntrix-idempotency-key"])
            self.answer(200)
        except (OSError, HTTPException) as error:  # It comes again, after a pause.
            print(f"{self.path}: {error}", file=sys.stderr, flush=True)
            self.answer(503)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        if status == 503:
            self.send_header("retry-after", "1")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


with ThreadingHTTPServer(("127.0.0.1", PORT), Flow) as server:
    print(f"listening on {server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()
