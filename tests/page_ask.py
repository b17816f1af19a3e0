"""page_ask.py - asks a page of runs what it should answer and what it should not; run by tests/cmd/page.sh in the folder of
the runs whole, live, damaged and empty, with the page's address as first argument.  Writes "PASSED FAILED" to counts."""
import fcntl
import http.client
import json
import os
import re
import socket
import sys
import time

base, token = sys.argv[1].strip().split("/#t=")
port = int(base.rsplit(":", 1)[1])
passed = failed = 0


def ok(good, what):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("FAILED:", what)


def ask(path, headers=None, method="GET", body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    h = {"X-Hone-Token": token}
    h.update(headers or {})
    c.request(method, path, body=body, headers={k: v for k, v in h.items() if v is not None})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, data, r


def get(path):
    code, data, _ = ask("/api/" + path)
    if code != 200:
        ok(False, f"{path}: {code} {data[:200]}")
        return {}
    return json.loads(data)


def raw(text, wait=True):
    s = socket.create_connection(("127.0.0.1", port), timeout=60)
    s.sendall(text)
    if not wait:
        return s
    out = b""
    try:
        while chunk := s.recv(65536):
            out += chunk
    except OSError:
        pass
    s.close()
    return out


def until(f, what):
    for _ in range(1500):
        if f():
            return ok(True, what)
        time.sleep(0.02)
    ok(False, what)


def runs():
    return get("runs")["runs"]


# ---- the page itself
code, data, r = ask("/", {"X-Hone-Token": None})
policy, page = r.getheader("Content-Security-Policy") or "", data.decode()
nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)
ok(code == 200 and nonce and page.count(f'nonce="{nonce[1]}"') == 2, "the page and its nonce")
ok("default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe-inline" not in policy, policy)
ok(ask("/", {"X-Hone-Token": None})[2].getheader("Content-Security-Policy") != policy, "a nonce came twice")
for h, v in (("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"), ("Cross-Origin-Resource-Policy", "same-origin")):
    ok(r.getheader(h) == v, f"{h}: {r.getheader(h)}")
ok(token not in page and "http://" not in page.replace("http://127.0.0.1:8265", "") and "https://" not in page, "the page names the token, or another place")
ok(ask("/", {"Accept-Encoding": "gzip"})[2].getheader("Content-Encoding") == "gzip", "not zipped")

# ---- who may ask
for what, code, headers in (
        ("no token", 401, {"X-Hone-Token": None}), ("a wrong token", 401, {"X-Hone-Token": token[:-1] + ("0" if token[-1] != "0" else "1")}),
        ("a part of it", 401, {"X-Hone-Token": token[:31]}), ("more than it", 401, {"X-Hone-Token": token + "0"}), ("an empty one", 401, {"X-Hone-Token": ""}),
        ("another name", 421, {"Host": "evil.example"}), ("another port", 421, {"Host": "127.0.0.1:1"}), ("another name that ends so", 421, {"Host": f"x.localhost:{port}"}),
        ("localhost", 200, {"Host": f"localhost:{port}"}), ("a page of another site", 403, {"Sec-Fetch-Site": "cross-site"}),
        ("a page of a sister site", 403, {"Sec-Fetch-Site": "same-site"}), ("its own page", 200, {"Sec-Fetch-Site": "same-origin"}), ("a person", 200, {"Sec-Fetch-Site": "none"})):
    got = ask("/api/runs", headers)[0]
    ok(got == code, f"{what}: {got}, not {code}")
ok(ask(f"/api/runs?t={token}&token={token}", {"X-Hone-Token": None})[0] == 401, "a token in the address was taken")
ok(b" 421 " in raw(b"GET /api/runs HTTP/1.0\r\nX-Hone-Token: " + token.encode() + b"\r\n\r\n"), "no Host at all")
for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "NONSENSE"):
    out = raw(f"{method} /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Hone-Token: {token}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
    ok(not out or out.split()[1] in (b"400", b"405", b"501"), f"{method}: {out[:60]}")
ok(ask("/api/runs", method="HEAD")[0] == 200, "HEAD")

# ---- nothing but what there is
for path in ("/etc/passwd", "/../../../etc/passwd", "/api/../page.url", "/api/%2e%2e/page.url", "/page.url", "/api/", "/api", "/api/run/../../page.url", "/whole/page.url",
             "/api/run?run=4", "/api/run?run=-1", "/api/run?run=99999999999999999999", "/api/run?run=../x", "/api/sample?run=0&id=2400", "/api/sample?id=-1",
             "//etc/passwd", "/api/log?run=0&from=x", "/api/metrics?px=nan", "/api/metrics?from=1e", "/api/runs/"):
    out = raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Hone-Token: {token}\r\nConnection: close\r\n\r\n".encode())
    ok(out.split()[1] in (b"404", b"400") and b"root:" not in out and b"#t=" not in out, f"{path}: {out[:80]}")

# ---- too large, too slow, not HTTP
before = len(runs())
many = f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Hone-Token: {token}\r\n"
for what, text in (("a long line", "GET /" + "a" * 100000 + " HTTP/1.1\r\n\r\n"), ("a long header", many + "X: " + "b" * 100000 + "\r\n\r\n"),
                   ("many headers", many + "".join(f"X{i}: y\r\n" for i in range(20000)) + "\r\n"), ("a body", many + "Content-Length: 100000000\r\n\r\n" + "z" * 100000),
                   ("a length below 0", many + "Content-Length: -5\r\n\r\n"), ("two lengths", many + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nffffffffffffff\r\n"),
                   ("noise", "\x16\x03\x01\x02\x00\x01\x00" * 3000), ("no line end", "GET / HTTP/1.1" * 3000)):
    out = raw(text.encode("latin-1") + (b"" if "no line" in what else b"\r\n\r\n"))
    ok(not out or out.split()[1][:1] in (b"4", b"5") or what in ("two lengths", "a length below 0"), f"{what}: {out[:80]}")
slow = [raw(b"GET /api/ru", wait=False) for _ in range(100)]
for _ in range(3):
    ok(len(runs()) == before, "with a hundred slow clients")
for s in slow[:5]:
    s.settimeout(120)
    try:
        end = s.recv(100)
    except ConnectionError:
        end = b""
    ok(end == b"" or end.startswith(b"HTTP/1.1 4"), f"a slow client: {end}")
for s in slow:
    s.close()

# ---- what it says of each run
until(lambda: all(r["read"] == 1 for r in runs()), "all is read")
whole, live, damaged, empty = runs()
ok(whole["state"] == "done" and whole["step"] == 300 and whole["rows"] == 301 and whole["samples"] == 2400, f"whole: {whole}")
ok(empty["state"] == "empty" and empty["step"] == -1, f"empty: {empty}")
ok(damaged["damaged"] == [4, 3], f"damaged: {damaged}")
run = get("run?run=0")
ok(run["badge"] == {"exact": 0, "step": 1, "tokens": 1500000} and run["config"]["trainer.steps"] == 300, f"{run.get('badge')} {run.get('config')}")
names = [m["name"] for m in run["metrics"]]
ok(len(names) == 44 and "odd/nothing" in names, f"{len(names)} metrics")
lines = [json.loads(x) for x in open("whole/metrics.jsonl")]
m = get("metrics?px=2000&names=" + "%0A".join(["critic/score/mean", "not/there", "val-core/score/mean"]) + "%0A")
want = [(x["step"], x["critic/score/mean"]) for x in lines if "critic/score/mean" in x]
ok(list(zip(m["series"][0]["x"], m["series"][0]["mean"])) == want and m["series"][1] is None and len(m["series"][2]["x"]) == 21, "300 steps, one by one")
m = get("metrics?px=7&from=100&to=199&names=critic/score/mean")["series"][0]
some = [v for s, v in want if 100 <= s <= 199]
ok(len(m["x"]) == 7 and min(m["lo"]) == min(some) and max(m["hi"]) == max(some), "a range in buckets")
ok(get("metrics?x=time&px=3&names=timing_s/step")["series"][0]["x"][-1] > 1000, "by time")
for i in range(4):
    for q in ("run", "system", "log", "samples?n=5", "metrics?names=critic/score/mean", "samples?sort=-score&q=answer&n=200"):
        get(q + ("&" if "?" in q else "?") + f"run={i}")
samples = [json.loads(x) for x in open("whole/samples.jsonl")]
a = get("samples?n=200&sort=-score&first=0")
ok(a["total"] == 2400 and a["rows"][0]["score"] == 1 and a["done"], "the best first")
ok(get("samples?step=17&n=50")["total"] == 8 and get("samples?from=3&to=5&min=0.5")["total"] == sum(3 <= s["step"] <= 5 and s["score"] >= 0.5 for s in samples), "steps and scores")
text = get("samples?n=50&q=of%20step%20123%3A")
ok(text["total"] == 8 and all(r["step"] == 123 for r in text["rows"]), f"text: {text['total']}")
one = get("sample?id=77")
ok(one["line"] == samples[77] and one["group"] == [76, 77, 78, 79] and one["parts"] is None, "one answer")
ok("made up" in get("log")["text"], "the log")

# ---- hostile answers come back as JSON strings, whatever they hold
hostile = get("samples?run=2&n=200")
ok(any("<script>" in (r.get("output") or "") for r in hostile["rows"]), "no hostile text")
for r in hostile["rows"]:
    get(f"sample?run=2&id={r['id']}")
code, data, r = ask("/api/samples?run=2&n=200")
ok(r.getheader("Content-Type") == "application/json" and r.getheader("X-Content-Type-Options") == "nosniff", "as what it is sent")

# ---- a run that is written to: lines come, half a line waits, the lock says that it lives
lock = os.open("live/lock", os.O_RDWR | os.O_CREAT)
os.write(lock, b"1\n")
fcntl.flock(lock, fcntl.LOCK_EX)
until(lambda: runs()[1]["state"] == "training", "a run whose lock is held")
rival = os.open("live/lock", os.O_RDWR)
try:
    fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ok(False, "the lock is not held")
except BlockingIOError:
    ok(True, "")
streams = []
for i in range(8):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/api/live", headers={"X-Hone-Token": token})
    r = c.getresponse()
    ok(r.status == 200 and r.getheader("Content-Type") == "text/event-stream", "a stream")
    streams.append((c, r))
ok(ask("/api/live")[0] == 503, "nine streams")
with open("live/metrics.jsonl", "a") as f:
    f.write('{"step":21,"critic/score/mean":0.75}\n{"step":22,"critic/sc')
until(lambda: runs()[1]["step"] == 21, "a line that came")
for n, (c, r) in enumerate(streams):
    text = b""
    while b'"step":21' not in text and len(text) < 1 << 20:
        text += r.read1(65536)
    ok(b"data: " in text and b"id: " in text, "the stream tells it")
    c.close()
c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
until(lambda: [c.close(), c.request("GET", "/api/live", headers={"X-Hone-Token": token}), c.getresponse().status][2] == 200, "streams that were closed make room")
c.close()
with open("live/metrics.jsonl", "a") as f:
    f.write('ore/mean":0.5}\n')
until(lambda: runs()[1]["step"] == 22, "the rest of a line")
with open("live/samples.jsonl", "a") as f:
    f.write('{"step":22,"row":1,"score":0.125,"output":"new"}\n')
until(lambda: get("samples?run=1&min=0.125&max=0.125")["total"] == 1, "an answer that came")

# ---- and that goes on from step 10: lines are cut, others come, some of them by the same second
keep = [x for x in open("live/metrics.jsonl") if json.loads(x)["step"] <= 10]
with open("live/metrics.jsonl", "r+") as f:
    f.truncate(len("".join(keep)))
with open("live/metrics.jsonl", "a") as f:
    for s in range(11, 31):
        f.write(f'{{"step":{s},"critic/score/mean":{s}}}\n')
old = [x for x in open("live/samples.jsonl") if json.loads(x)["step"] <= 10]
with open("live/samples.jsonl", "r+") as f:
    f.truncate(len("".join(old)))
until(lambda: runs()[1]["step"] == 30 and runs()[1]["samples"] == len(old), "a run that went on")
m = get("metrics?run=1&px=2000&names=critic/score/mean")["series"][0]
ok(dict(zip(m["x"], m["mean"]))[30] == 30 and len(m["x"]) == 30, "the steps that were done again")
ok(get("samples?run=1&min=0.125&max=0.125")["total"] == sum(s["score"] == 0.125 for s in map(json.loads, old)), "answers that were cut are gone")
os.close(lock)
until(lambda: runs()[1]["state"] != "training", "a run that ended")
open("counts", "w").write(f"{passed} {failed}")
