"""client.py - what the tests of `hone serve` share: a server that is started and ended, requests to it by Python's own
http.client, events of a stream put together, and counting."""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

passed = failed = 0


def ok(condition, what, *more):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print("FAILED:", what, *[str(m)[:400] for m in more])
    return condition


def the_end():
    print(f"{passed} passed, {failed} failed, 0 skipped")
    sys.exit(failed != 0)


class Server:
    """with Server(hone, model, "--threads", "1") as s: s.post(...)"""

    def __init__(self, hone, model, *options):
        self.log = tempfile.TemporaryFile("w+")
        self.run = subprocess.Popen([hone, "serve", model, "--port", "0", "--device", "cpu", *options], stderr=self.log)
        self.port = None
        while self.port is None and self.run.poll() is None:
            said = re.search(r":(\d+)/v1:", self.said())
            self.port = int(said.group(1)) if said else None
        assert self.port, self.said()

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.run.poll() is None:
            self.run.send_signal(signal.SIGTERM)
        return self.run.wait()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, method, path, body=None, headers=None):
        """status, headers, the JSON (or bytes) of an answer"""
        c = self.connect()
        c.request(method, path, body if body is None or isinstance(body, (bytes, str)) else json.dumps(body), headers or {})
        r = c.getresponse()
        text = r.read()
        c.close()
        try:
            return r.status, r.headers, json.loads(text)
        except ValueError:
            return r.status, r.headers, text

    def post(self, path, **body):
        status, _, got = self.ask("POST", path, body)
        assert status == 200, (status, got)
        return got

    def events(self, path, **body):
        """the objects of a stream, to [DONE]"""
        c = self.connect()
        c.request("POST", path, json.dumps(dict(body, stream=True)))
        r = c.getresponse()
        assert r.status == 200 and r.headers["Content-Type"].startswith("text/event-stream"), (r.status, r.read())
        all = r.read().decode().split("\n\n")
        c.close()
        assert all[-1] == "" and all[-2] == "data: [DONE]" and all[0].startswith("data: {"), all
        return [json.loads(e[len("data: "):]) for e in all[:-2]]

    def memory(self):
        """bytes that are resident"""
        with open(f"/proc/{self.run.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def joined(events, chat):
    """A stream as the choices of a whole answer: index -> text, ids, log-probs, reason."""
    out = {}
    for e in events:
        for c in e["choices"]:
            o = out.setdefault(c["index"], {"text": "", "ids": [], "logprobs": [], "reason": None, "tokens": []})
            o["text"] += (c["delta"].get("content") or "") if chat else c["text"]
            o["ids"] += c.get("token_ids") or []
            if c.get("logprobs"):
                content = c["logprobs"]["content"] if chat else None
                o["logprobs"] += [t["logprob"] for t in content] if chat else c["logprobs"]["token_logprobs"]
                o["tokens"] += [t["token"] for t in content] if chat else c["logprobs"]["tokens"]
            o["reason"] = c["finish_reason"] or o["reason"]
    return out


def generate(hone, model, lines, *options):
    """`hone generate`'s answers to these lines"""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    r = subprocess.run([hone, "generate", model, "--device", "cpu", "--threads", "1", *options], input=text, text=True,
                       capture_output=True, check=True)
    return [json.loads(line) for line in r.stdout.splitlines()]
