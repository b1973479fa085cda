"""Pays through the gateway, once, however often it has to ask. Python 3, nothing else.

    semel demo
    python3 examples/pay.py http://127.0.0.1:PORT
"""

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
import uuid


def pay(gateway, payment, tries=5):
    # One key for one payment: made before the first try, and sent with every one. Keep it with the payment,
    # so that a program that was restarted asks for the same.
    key = str(uuid.uuid4())
    for attempt in range(tries):
        request = urllib.request.Request(
            gateway + "/payments",
            data=json.dumps(payment).encode(),
            headers={"Content-Type": "application/json", "Idempotency-Key": key},
        )
        pause = 0.2 * 2**attempt
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                replayed = answer.headers.get("Idempotency-Replayed") == "true"
                return json.load(answer), replayed
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            # 409 while it is being processed, and 5xx: the same request may be sent again. A key whose outcome
            # is not known needs a person; anything else is wrong with the request.
            if problem.get("code") == "idempotency_outcome_unknown" or refused.code not in (409, 429, 500, 502, 503, 504):
                raise SystemExit(f"refused: {refused.code} {problem.get('title')}; the key is {key}")
            after = refused.headers.get("Retry-After", "")
            pause = float(after) if after.isdigit() else pause
        except (OSError, http.client.HTTPException):
            pass  # Whether it arrived is not known, which is what the key is for.
        time.sleep(pause)
    raise SystemExit("no answer; try again later with the same key: " + key)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: pay.py URL-OF-THE-GATEWAY")
    receipt, replayed = pay(sys.argv[1].rstrip("/"), {"to": "ann", "cents": 1000})
    print(f"receipt {receipt['receipt']}" + (", from the record" if replayed else ""))
