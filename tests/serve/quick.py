"""quick.py - `hone serve` as a client meets it: answers are `hone generate`'s and `hone score`'s, whole and streamed, alone
and among others; what is wrong, or not there, is refused in OpenAI's form; a client that leaves is forgotten.
    python3 tests/serve/quick.py HONE MODEL"""
import json
import socket
import subprocess
import sys
import threading
import time

from client import Server, generate, joined, ok, the_end

hone, model = sys.argv[1:3]
SAY = {"messages": [{"role": "user", "content": "one two three"}]}


def until(what, seconds=60):
    end = time.time() + seconds
    while not what() and time.time() < end:
        time.sleep(0.01)
    return what()


def health(s):
    return s.ask("GET", "/health")[2]


def as_generate(s):
    settings = [dict(), dict(temperature=0), dict(temperature=0.7, top_p=0.8), dict(top_k=9, min_p=0.02), dict(min_tokens=9),
                dict(ignore_eos=True)]
    for k, more in enumerate(settings):
        more = dict(more, max_tokens=20, seed=11 + k, n=3)
        want = generate(hone, model, [dict(SAY, **more), dict(text="7+8=", **more), dict(tokens=[50, 43, 51, 61], **more)])
        chat = s.post("/v1/chat/completions", **SAY, logprobs=True, return_token_ids=True, **more)
        words = s.post("/v1/completions", prompt="7+8=", logprobs=0, return_token_ids=True, **more)
        ids = s.post("/completions", prompt=[50, 43, 51, 61], logprobs=3, return_token_ids=True, **more)
        for i in range(3):
            for got, w in ((chat, want[i]), (words, want[3 + i]), (ids, want[6 + i])):
                c = got["choices"][i]
                lp = [t["logprob"] for t in c["logprobs"]["content"]] if "message" in c else c["logprobs"]["token_logprobs"]
                text = c["message"]["content"] if "message" in c else c["text"]
                ok(c["index"] == i and c["token_ids"] == w["tokens"][w["prompt_length"]:] and lp == w["logprobs"]
                   and text == w["text"] and c["finish_reason"] == w["finish"], f"{more}, answer {i} is not generate's", c, w)
        ok(chat["prompt_token_ids"] == want[0]["tokens"][:want[0]["prompt_length"]], "the prompt's ids")
        ok(chat["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in chat["choices"]), "usage", chat["usage"])
        for i, best in enumerate(ids["choices"][0]["logprobs"]["top_logprobs"]):
            ok(len(best) <= 4 and max(best.values()) >= ids["choices"][0]["logprobs"]["token_logprobs"][i], "top", best)
        if more.get("temperature") == 0:
            l = ids["choices"][0]["logprobs"]
            ok(all(max(b.values()) == p for b, p in zip(l["top_logprobs"], l["token_logprobs"])), "greedy is the likeliest", l)
        events = s.events("/v1/chat/completions", **SAY, logprobs=True, return_token_ids=True,
                          stream_options={"include_usage": True}, **more)
        for i, o in joined(events, True).items():
            w = want[i]
            ok(o["text"] == w["text"] and o["ids"] == w["tokens"][w["prompt_length"]:] and o["logprobs"] == w["logprobs"]
               and o["reason"] == w["finish"], f"{more}: the stream of answer {i}", o, w)
        ok(events[-1]["usage"] == chat["usage"] and not events[-1]["choices"] and events[0]["usage"] is None, "usage of a stream")
        ok(events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}, "the first event", events[0])
        for i, o in joined(s.events("/v1/completions", prompt=[[50, 43], [50, 43, 51, 61]], logprobs=2, return_token_ids=True,
                                    **more), False).items():
            if i >= 3:
                w = want[6 + i - 3]
                ok(o["text"] == w["text"] and o["logprobs"] == w["logprobs"], f"{more}: prompt 1, answer {i - 3} in a stream", o, w)
    told = s.post("/v1/chat/completions", **SAY, max_tokens=9)
    again = s.post("/v1/chat/completions", **SAY, max_tokens=9, seed=told["seed"])
    ok(again["choices"] == told["choices"] and "seed" not in again, "a seed that was told gives the answer again", told, again)


def as_score(s):
    line = [11, 50, 43, 51, 61, 9, 97]
    r = subprocess.run([hone, "score", model, "--device", "cpu", "--threads", "1"], input=json.dumps({"tokens": line}) + "\n",
                       text=True, capture_output=True, check=True)
    want = json.loads(r.stdout)["logprobs"]
    for k in range(3): # once more where its pages are known
        got = s.post("/v1/completions", prompt=[line, line[:3]], max_tokens=0, echo=True, logprobs=k)
        l = got["choices"][0]["logprobs"]
        ok(l["token_logprobs"] == [None] + want and len(l["tokens"]) == 7, "echo with max_tokens 0 is score's", l, want)
        ok(got["choices"][1]["logprobs"]["token_logprobs"] == [None] + want[:2], "a second prompt", got)
        ok(got["usage"]["completion_tokens"] == 0 and got["choices"][0]["finish_reason"] == "length", "nothing is drawn", got)
        ok(bool(l["top_logprobs"]) == (k > 0), "top_logprobs", l)
        events = joined(s.events("/v1/completions", prompt=line, max_tokens=2, echo=True, logprobs=k, seed=1), False)[0]
        whole = s.post("/v1/completions", prompt=line, max_tokens=2, echo=True, logprobs=k, seed=1)["choices"][0]
        ok(events["text"] == whole["text"] and events["logprobs"] == whole["logprobs"]["token_logprobs"]
           and events["logprobs"][:7] == [None] + want, "echo in a stream", events, whole)
    full = [i % 250 for i in range(512)]
    l = s.post("/v1/completions", prompt=full, max_tokens=0, echo=True, logprobs=1)["choices"][0]["logprobs"]
    ok(len(l["token_logprobs"]) == 512, "a prompt as long as the context")
    one = s.post("/v1/completions", prompt=full[:511], max_tokens=5)["choices"][0]
    ok(one["finish_reason"] == "length", "room for one token", one)


def stops(s):
    base = dict(SAY, max_tokens=60, temperature=0, ignore_eos=True)
    text = s.post("/v1/chat/completions", **base)["choices"][0]["message"]["content"]
    for at, n in ((5, 1), (9, 3), (0, 1), (12, 2), (20, 4)):
        stop = text[at:at + n]
        if not stop:
            continue
        want = text[:text.index(stop)]
        c = s.post("/v1/chat/completions", stop=["no such text", stop], **base)["choices"][0]
        ok(c["message"]["content"] == want and c["finish_reason"] == "stop" and c["stop_reason"] == stop, "stop", repr(stop), c)
        o = joined(s.events("/v1/chat/completions", stop=stop, **base), True)[0]
        ok(o["text"] == want and o["reason"] == "stop", "stop in a stream", repr(stop), o)


def among_others(s, n):
    """Each of many streams is what it is alone."""
    asks = [dict(messages=[{"role": "user", "content": f"{i % 17}+{i % 5}=" * (1 + i % 7)}], max_tokens=8 + i % 23,
                 seed=i, temperature=0.5 + i % 3 / 2, top_p=1 - i % 4 / 10, logprobs=bool(i % 2)) for i in range(n)]
    got = [None] * n

    def one(i):
        o = joined(s.events("/v1/chat/completions", **asks[i]), True)[0]
        got[i] = (o["text"], o["logprobs"], o["reason"])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    together = list(got)
    bad = 0
    for i in range(n):
        one(i)
        bad += got[i] != together[i]
    ok(bad == 0 and all(together), f"{bad} of {n} streams differ from the same request alone")
    ok(until(lambda: health(s) == {"status": "ok", "running": 0, "waiting": 0}), "nothing is under way", health(s))


def refusals(s):
    chat = "/v1/chat/completions"
    cases = [  # path, body, status, field, words
        (chat, b"", 400, None, "no body"), (chat, b"{", 400, None, "not JSON"), (chat, b"[]", 400, None, "object"),
        (chat, b'{"messages":"\\ud800"}', 400, None, ""), (chat, {}, 400, "messages", "list"),
        (chat, {"messages": []}, 400, "messages", "at least one"), (chat, {"messages": [1]}, 400, "messages", "object"),
        (chat, {"messages": [{"role": "who", "content": "x"}]}, 400, "messages", "role"),
        (chat, {"messages": [{"role": "tool", "content": "x"}]}, 400, "messages", "tools are not served yet"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]}, 400,
         "messages", "sees none"),
        (chat, dict(SAY, model="gpt-4"), 404, "model", "does not exist"), (chat, dict(SAY, tools=[{}]), 400, "tools", "not served"),
        (chat, dict(SAY, response_format={"type": "json_object"}), 400, "response_format", "not served"),
        (chat, dict(SAY, max_tokens=-1), 400, "max_tokens", "below 0"), (chat, dict(SAY, max_tokens="9"), 400, "max_tokens", ""),
        (chat, dict(SAY, max_completion_tokens=0), 400, "max_completion_tokens", "echo"), (chat, dict(SAY, n=0), 400, "n", "between"),
        (chat, dict(SAY, n=1.5), 400, "n", ""), (chat, dict(SAY, n=129), 400, "n", "128"),
        (chat, dict(SAY, temperature=-1), 400, "temperature", ""), (chat, dict(SAY, temperature="hot"), 400, "temperature", ""),
        (chat, dict(SAY, top_p=0), 400, "top_p", ""), (chat, dict(SAY, stop=[""]), 400, "stop", ""), (chat, dict(SAY, stop=7), 400, "stop", ""),
        (chat, dict(SAY, stop=["x"] * 65), 400, "stop", "64"), (chat, dict(SAY, top_logprobs=3), 400, "top_logprobs", "logprobs"),
        (chat, dict(SAY, logprobs=True, top_logprobs=21), 400, "top_logprobs", "20"), (chat, dict(SAY, logprobs=1), 400, "logprobs", ""),
        (chat, dict(SAY, stream="yes"), 400, "stream", ""), (chat, dict(SAY, stream_options={}), 400, "stream_options", "stream"),
        (chat, dict(SAY, frequency_penalty=0.5), 400, "frequency_penalty", "not served"),
        (chat, dict(SAY, seed=1.5), 400, "seed", ""), (chat, dict(SAY, logit_bias={"5": 1}), 400, "logit_bias", ""),
        (chat, {"messages": [{"role": "user", "content": "long " * 200}]}, 400, "messages", "maximum context length is 512 tokens"),
        ("/v1/completions", {}, 400, "prompt", "missing"), ("/v1/completions", {"prompt": []}, 400, "prompt", ""),
        ("/v1/completions", {"prompt": [[]]}, 400, "prompt", ""), ("/v1/completions", {"prompt": ""}, 400, "prompt", "at least one"),
        ("/v1/completions", {"prompt": [1, "a"]}, 400, "prompt", ""), ("/v1/completions", {"prompt": [1, 262]}, 400, "prompt", "261"),
        ("/v1/completions", {"prompt": [1] * 600}, 400, "prompt", "maximum context length"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, 400, "suffix", ""), ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "echo"),
        ("/v1/completions", {"prompt": "x", "logprobs": 99}, 400, "logprobs", "20"),
        ("/v1/completions", {"prompt": ["x"] * 2000}, 400, "prompt", "1024"),
        ("/v1/nothing", {}, 404, None, "nothing at"), ("/v1/embeddings", {}, 501, None, "not served yet"), ("/v1/models", {}, 405, None, "GET"),
    ]
    for path, body, status, field, words in cases:
        got = s.ask("POST", path, body)
        e = got[2].get("error", {}) if isinstance(got[2], dict) else {}
        ok(got[0] == status and e.get("param") == field and words in e.get("message", "") and e.get("type") and "\n" not in e["message"],
           f"{path} {str(body)[:80]}", got)
    ok(s.ask("GET", chat)[0] == 405 and s.ask("GET", "/v1/models/other")[0] == 404, "GET where there is nothing to get")
    everything = {k: None for k in ("model tools tool_choice response_format n stop seed temperature top_p top_k min_p max_tokens stream "
                                    "stream_options logprobs top_logprobs logit_bias user presence_penalty unknown_field").split()}
    ok(s.post(chat, **dict(SAY, **everything, max_completion_tokens=2))["choices"], "null says nothing")
    ok(s.post(chat, messages=[{"role": "developer", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "one two "},
       {"type": "text", "text": "three"}]}], max_tokens=2)["usage"]["prompt_tokens"], "parts of text")
    head = {"Host": "evil.example:80"}
    ok(s.ask("GET", "/health", headers=head)[0] == 403, "a Host from elsewhere")
    ok(s.ask("GET", "/v1/models", headers={"Origin": "http://evil.example"})[0] == 403, "a page from elsewhere")
    ok(s.ask("GET", "/v1/models", headers={"Host": "LOCALHOST:1", "Origin": "http://localhost:3000"})[0] == 200, "a page from here")
    ok(s.ask("POST", chat, dict(SAY), {"Content-Encoding": "gzip"})[0] == 415, "a compressed body")
    ok(s.ask("HEAD", "/health")[0] == 200, "HEAD")


def leaving(s):
    """A client that goes: what was drawn for it ends; whoever stays gets the same."""
    long = json.dumps(dict(SAY, ignore_eos=True, max_tokens=450, seed=1, n=4, stream=True))
    whole = json.dumps(dict(SAY, ignore_eos=True, max_tokens=450, seed=1, n=4))
    for body in (long, whole):
        for half in (False, True):
            c = socket.create_connection(("127.0.0.1", s.port))
            c.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            ok(until(lambda: health(s)["running"] == 1), "it is being answered")
            c.shutdown(socket.SHUT_WR) if half else c.close()
            ok(until(lambda: health(s)["running"] == 0), "its client left, and it is still drawn")
            c.close()


def keys_and_lines():
    with Server(hone, model, "--threads", "1", "--api-key", "s3cret", "--max-waiting", "2", "--max-batch", "1", "--name", "small",
                "--max-held", "100000", "--seed", "5") as s:
        key = {"Authorization": "Bearer s3cret"}
        for wrong in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}, {"Authorization": "Bearer "}):
            got = s.ask("GET", "/v1/models", headers=wrong)
            ok(got[0] == 401 and got[2]["error"]["code"] == "invalid_api_key", "without the key", wrong, got)
        ok(s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/v1/models", headers=key)[2]["data"][0]["id"] == "small", "with it")
        two = [s.ask("POST", "/v1/completions", {"prompt": "1+1", "model": "small"}, key)[2]["choices"] for _ in range(2)]
        ok(two[0] == two[1], "--seed: two requests that name none are one", two)
        clients = [s.connect() for _ in range(9)]
        for c in clients:
            c.request("POST", "/v1/chat/completions", json.dumps(dict(SAY, ignore_eos=True, max_tokens=300)), key)
        answers = [c.getresponse() for c in clients]
        full = [a for a in answers if a.status == 429]
        ok(full and all(a.headers["Retry-After"] for a in full) and {a.status for a in answers} == {200, 429}, "a full line",
           [a.status for a in answers])
        ok(s.ask("POST", "/v1/completions", {"prompt": "x" * 200000}, key)[0] == 503, "more than may be held")
        ok(s.end() == 0, "the end", s.said())


with Server(hone, model, "--threads", "1") as s:
    ok(s.ask("GET", "/v1/models")[2]["data"][0]["max_model_len"] == 512, "models")
    as_generate(s)
    as_score(s)
    stops(s)
    among_others(s, 40)
    refusals(s)
    leaving(s)
    ok(s.end() == 0, "the end", s.said())
keys_and_lines()
for wrong in (["--host", "0.0.0.0"], ["--adapter", "a=b"], ["--port", "70000"]):
    r = subprocess.run([hone, "serve", model, *wrong], capture_output=True, text=True)
    ok(r.returncode == 2 and r.stderr.count("\n") == 1, "a wrong command line", wrong, r)
the_end()
