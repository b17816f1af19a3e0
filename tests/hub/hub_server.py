"""hub_server.py - a hub for tests, on this machine: the interface that `hone pull` asks, its files on a second server
(as storage is: another port is another server), and what goes wrong on the way, told by a file.

  python3 hub_server.py DIR LOG    prints the hub's URL; DIR/{models,datasets}/ORG/NAME/... are repositories
  DIR/faults: lines "FILE FAULT [FAULT...]", one fault for each request of FILE's bytes, in turn: cut:N (the connection
  ends after N bytes), 404, 429, 503, wrong (other bytes), norange (200 and all bytes), wrongrange, loop (redirects),
  ok; "list FAULT..." are of the list of files.  DIR/tokens: "ORG/NAME TOKEN" or "ORG/NAME gated".
  LOG gets a line for each request: SERVER METHOD PATH STATUS RANGE AUTHORIZATION
"""
import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

ROOT, LOG = sys.argv[1], open(sys.argv[2], "a", buffering=1)
lock, used, ports = threading.Lock(), {}, {}


def lines(name):
    try:
        with open(os.path.join(ROOT, name)) as f:
            return dict((k, v) for k, *v in (line.split() for line in f if line.strip()))
    except FileNotFoundError:
        return {}


def fault(name):
    with lock:
        plan = lines("faults").get(name, [])
        used[name] = used.get(name, 0) + 1
        return plan[used[name] - 1] if used[name] <= len(plan) else "ok"


def files(folder):
    return sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, fs in os.walk(folder) for f in fs)


def commit(folder):
    h = hashlib.sha1()
    for name in files(folder):
        h.update(name.encode() + open(os.path.join(folder, name), "rb").read())
    return h.hexdigest()


def listing(folder):
    rows = []
    for name in files(folder):
        data = open(os.path.join(folder, name), "rb").read()
        row = {"rfilename": name, "size": len(data),
               "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
        if name.endswith((".safetensors", ".parquet", ".gguf")):
            row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        rows.append(row)
    if os.path.exists(os.path.join(ROOT, "listing")):  # as it stands there: what a strange hub says
        return open(os.path.join(ROOT, "listing")).read()
    return json.dumps({"id": "x", "sha": commit(folder), "siblings": rows})


class Base(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def note(self, status):
        LOG.write(f"{self.kind} {self.command} {self.path} {status} {self.headers.get('Range', '-')} "
                  f"{(self.headers.get('Authorization') or '-').replace(' ', '_')}\n")

    def give(self, status, body=b"", **headers):
        self.note(status)
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Hub(Base):
    kind = "hub"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        parts = path.strip("/").split("/")
        api = parts[0] == "api"
        if api:
            parts = parts[1:]
        what = parts[0] if parts[0] in ("models", "datasets") else "models"
        if parts[0] in ("models", "datasets"):
            parts = parts[1:]
        repo, word, rev, name = "/".join(parts[:2]), parts[2], parts[3], "/".join(parts[4:])
        folder = os.path.join(ROOT, what, repo)
        needs = lines("tokens").get(repo)
        given = self.headers.get("Authorization", "")
        if not os.path.isdir(folder) or (needs and not given):
            return self.give(401, b"{}", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if needs == ["gated"]:
            return self.give(403, b"{}", X_Error_Code="GatedRepo", X_Error_Message="Access is restricted")
        if needs and given != "Bearer " + needs[0]:
            return self.give(401, b"{}", X_Error_Message="Invalid credentials")
        if rev not in ("main", "v1", commit(folder)):
            return self.give(404, b"{}", X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        if api:
            f = fault("list")
            if f.isdigit():
                return self.give(int(f), b"later", Retry_After="0")
            return self.give(200, listing(folder).encode(), Content_Type="application/json")
        if not os.path.isfile(os.path.join(folder, name)):
            return self.give(404, b"Entry not found", X_Error_Code="EntryNotFound")
        if name.endswith((".safetensors", ".parquet", ".gguf")):
            at = f"http://127.0.0.1:{ports['storage']}/{what}/{repo}/{name}?signed=1"
            return self.give(302, b"moved to storage", Location=at)
        self.bytes_of(os.path.join(folder, name), name)

    def bytes_of(self, path, name):
        data, f, start = open(path, "rb").read(), fault(name), 0
        whole = len(data)
        if f.isdigit():
            return self.give(int(f), b"no", Retry_After="0")
        if f == "loop":
            return self.give(302, b"", Location=self.path)
        if f == "wrong":
            data = bytes(b ^ 1 for b in data[:10]) + data[10:]
        if f == "longer":
            data, whole = data + b"more", whole + 4
        ranged = self.headers.get("Range") if f != "norange" else None
        if ranged:
            start = int(ranged.split("=")[1].split("-")[0])
            if start >= whole:
                return self.give(416, b"", Content_Range=f"bytes */{whole}")
        if f == "wrongrange":
            start = 0
        self.note(206 if ranged else 200)
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(whole - start))
        self.end_headers()
        body = data[start:]
        if f.startswith("cut:"):
            self.wfile.write(body[:int(f[4:])])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(body)


class Storage(Hub):
    kind = "storage"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        self.bytes_of(os.path.join(ROOT, path), "/".join(path.split("/")[3:]))


class Quiet(ThreadingHTTPServer):
    def handle_error(self, *a):  # a client that has enough and leaves
        pass


servers = {"hub": Quiet(("127.0.0.1", 0), Hub),
           "storage": Quiet(("127.0.0.1", 0), Storage)}
for k, s in servers.items():
    ports[k] = s.server_port
    s.daemon_threads = True
    threading.Thread(target=s.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{ports['hub']}", flush=True)
threading.Event().wait()
