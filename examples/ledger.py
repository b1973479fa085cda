"""A service behind the gateway that commits its effect and its outcome together. Python 3 and psql, nothing else.

    psql postgres://app@localhost/app -c 'create table ledger (cents bigint not null)'
    semel gateway --store postgres://app@localhost/app --migrate --policy transactional --upstream http://127.0.0.1:3000
    python3 examples/ledger.py 3000 postgres://app@localhost/app
"""

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

# Either both are committed or neither is. `semel.complete` fails if another attempt has the key by now.
BOOK = """
begin;
insert into ledger (cents) values (:'cents');
select semel.complete(:'realm', :'principal', :'key', :'token', :'fence', 201,
    convert_to(:'reply', 'UTF8'), '[["content-type", "application/json"]]');
commit;
"""


def book(headers, cents, database):
    reply = json.dumps({"booked": cents})
    values = {
        "cents": cents,
        "reply": reply,
        "realm": unquote(headers["Semel-Realm"]),
        "principal": unquote(headers["Semel-Principal"]),
        # The key as the record has it; Idempotency-Key may have quotation marks around it.
        "key": headers["Semel-Key"],
        "token": headers["Semel-Token"],
        "fence": headers["Semel-Fence"],
    }
    # A real service has a driver and a pool; psql quotes its variables as a driver does.
    variables = [word for name, value in values.items() for word in ("-v", f"{name}={value}")]
    psql = ["psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", *variables, database]
    subprocess.run(psql, input=BOOK, text=True, check=True, stdout=subprocess.DEVNULL)
    return reply


class Ledger(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, reply = 201, book(self.headers, int(json.loads(body)["cents"]), sys.argv[2])
        except subprocess.CalledProcessError:
            # Rolled back, or an earlier attempt was faster: the gateway releases the key, or answers from the record.
            status, reply = 503, json.dumps({"booked": None})
        except (ValueError, KeyError, TypeError):
            status, reply = 400, json.dumps({"error": "send an object with a number of cents"})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply.encode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: ledger.py PORT URL-OF-THE-DATABASE")
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Ledger)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
