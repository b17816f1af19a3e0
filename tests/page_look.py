"""page_look.py - looks at runs in a browser and does what people do; run by tests/all/page.sh in the folder of the runs.
   page_look.py HONE PICTURES      writes "PASSED FAILED" to counts."""
import fcntl
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser  # noqa: E402

hone, pictures = sys.argv[1:3]
passed = failed = 0
browser = Browser()


def ok(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what)


class Page:
    def __init__(self, *runs):
        self.p = subprocess.Popen([hone, "page", *runs, "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.url = self.p.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.terminate()
        ok(self.p.wait() == 0, "the server's end")

    def open(self, more=""):
        browser.open(self.url + more)


def until(js, what):
    try:
        browser.wait(js, what, 120)
        ok(True, what)
    except SystemExit as e:
        ok(False, e)


def picture(name):
    browser.picture(os.path.join(pictures, name + ".png"))


def js(code):
    return browser.js("return " + code)


DRAWN = "plots.filter(p=>p.data.length&&p.c.clientWidth&&seen(p.c)).length>=6&&!busy"
QUIET = "document.getElementById('say').hidden"


def quiet(what):
    log = [m for m in browser.log() if "favicon" not in m]
    ok(not log and js(QUIET), f"{what}: {log} {js('document.getElementById(`say`).textContent')}")


def every_view(page, name):
    page.open()
    until(DRAWN, f"{name}: curves")
    picture(name + "-curves")
    for v, there in (("answers", "document.querySelectorAll('#window .row').length>0||listing.total===0"), ("time", "document.querySelector('#system .g')&&!busy"),
                     ("config", "document.querySelector('#config-table').children.length"), ("log", "document.querySelector('#log')&&!busy")):
        browser.js(f"document.querySelector('nav a[href*=\"v={v}\"]').click()")
        until(there, f"{name}: {v}")
        time.sleep(0.3)
        picture(f"{name}-{v}")
    quiet(name)


def whole():
    with Page("whole") as page:
        every_view(page, "whole")
        ok(js("document.querySelector('.badge.ok').textContent") == "✓ exact diff 0", "the badge")
        # a click on a curve at a step: its answers
        browser.js("document.querySelector('nav a[href*=\"v=curves\"]').click()")
        until(DRAWN, "curves again")
        browser.click("#plots canvas", x=200, y=60)
        until("view()==='answers'&&state.get('steps')&&listing.rows.size>0&&!busy", "from a curve to its step")
        step = js("state.get('steps')")
        ok(js("[...listing.rows.values()].every(r=>r.step==" + step + ")") and js("listing.total") == 8, f"the answers of step {step}")
        browser.js("history.back()")
        until("view()==='curves'&&" + DRAWN, "back")
        # drag to zoom, double click for all of it
        r = js("(()=>{const r=document.querySelector('#plots canvas').getBoundingClientRect();return [r.left,r.top,r.width,r.height]})()")
        browser.mouse([(r[0] + r[2] * .3, r[1] + 60), (r[0] + r[2] * .5, r[1] + 60), (r[0] + r[2] * .6, r[1] + 70)])
        until("range()&&plots[0].data[0].x[0]>50&&plots[0].data[0].x.at(-1)<250", "a zoom")
        browser.js("document.getElementById('whole').click()")
        until("!range()&&plots[0].data[0].x.length>290", "the whole run")
        browser.js("document.querySelector('#plots figure').focus()")
        browser.keys("\ue012\ue012")
        until("plots[0].cur===299||plots[0].cur===298", "arrow keys")
        browser.js("document.getElementById('filter').value='extra/00';document.getElementById('filter').oninput()")
        until("plots.filter(p=>!p.f.hidden).length===8&&plots.filter(p=>!p.f.hidden).every(p=>p.data.length)", "a filter")
        browser.js("document.getElementById('filter').value='';document.getElementById('filter').oninput()")
        for x in ("time", "tokens"):
            browser.js(f"document.getElementById('x-axis').value='{x}';document.getElementById('x-axis').onchange({{target:document.getElementById('x-axis')}})")
            until(f"xOf()==='{x}'&&plots[0].data[0]&&plots[0].data[0].x.at(-1)>1000", "by " + x)
        # answers: text, score, colours, groups
        page.open("&v=answers&q=of%20step%20123%3A")
        until("listing.total===8&&current&&!busy", "text")
        until("document.querySelectorAll('#one .tok').length===current.s.tokens", "a span a token")
        for tint in ("logprob", "entropy", "advantage", "none"):
            browser.js(f"const s=document.querySelector('#one select');s.value='{tint}';s.onchange()")
            n = js("[...document.querySelectorAll('#one .tok')].filter(t=>t.style.background).length")
            ok(n > 0 if tint != "none" else n == 0, f"{n} tokens are coloured by {tint}")
        picture("whole-tokens")
        browser.js("[...document.querySelectorAll('#one .tools button')][1].click()")
        until("document.querySelectorAll('.card').length===4", "a group side by side")
        picture("whole-group")
        page.open("&v=answers&steps=130&id=" + str(129 * 8 + 2))
        until("document.querySelectorAll('#one .block').length>=5", "turns as blocks")
        ok(js("[...document.querySelectorAll('#one .block .who')].map(e=>e.textContent).join()").count("not learned") == 2, "what is not learned")
        picture("whole-turns")
        quiet("whole")


def three():
    with Page("whole", "faster", "shorter") as page:
        every_view(page, "three")
        page.open("&v=config")
        until("document.querySelectorAll('#config-table tr.differs').length===4", "what differs")
        page.open()
        until("plots[0]?.data.length===3", "three in one picture")
        browser.js("document.querySelectorAll('.run')[1].click()")
        until("plots[0].data.length===2", "one is hidden")
        quiet("three")


def hostile():
    with Page("hostile") as page:
        every_view(page, "hostile")
        for i in range(30):
            page.open(f"&v=answers&id={i * 16 + i % 8}") if i % 10 == 0 else browser.js(f"lookAt='answer';show({i * 16 + i % 8})")
            until(f"current&&current.id==={i * 16 + i % 8}", "a hostile answer")
        browser.js("[...document.querySelectorAll('#one .tools button')][1].click()")
        until("document.querySelectorAll('.card').length===4", "hostile answers side by side")
        picture("hostile-group")
        ok(js("window.pwned") is None, "a script of an answer ran")
        ok(js("document.querySelectorAll('#one script,#one img,#one svg,#one b b,#one a,#list script,#list img').length") == 0, "markup of an answer is markup")
        ok(js("!/[\\u202a-\\u202e\\u2066-\\u2069\\u0000-\\u0008\\u001b]/.test(document.body.textContent)"), "a character that steers")
        page.open("&v=answers&q=esrever")
        until("listing.total>0&&document.querySelector('.said .u')", "its number is shown")
        quiet("hostile")


def damaged():
    with Page("damaged") as page:
        every_view(page, "damaged")
        ok("damaged lines" in js("document.querySelector('.run').textContent"), "damaged lines are told")


def live():
    lock = os.open("live/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with Page("live") as page:
        page.open()
        until(DRAWN + "&&document.querySelector('.state.training')", "it trains")
        until("document.getElementById('live').textContent==='● live'", "a stream")
        with open("live/metrics.jsonl", "a") as f:
            for s in range(21, 24):
                f.write(f'{{"step":{s},"critic/score/mean":0.9,"timing_s/step":1}}\n')
        until("plots[0].data[0].x.at(-1)===23", "steps that came")
        picture("live-curves")
        with open("live/metrics.jsonl", "a") as f:
            f.write('{"step":24,"critic/score/mean":0.9,"exact/max_abs_logprob_diff":1e-6,"exact/tokens":9}\n')
        until("document.querySelector('.badge.bad')?.textContent.includes('1')&&document.querySelector('nav .n.bad')", "a difference, and its alert")
        os.close(lock)
        until("document.querySelector('.state.gone,.state.done')", "it ended")
        picture("live-ended")
    browser.open("about:blank")


def large():
    start = time.time()
    with Page("large") as page:
        page.open()
        until(DRAWN, "10^5 steps: curves")
        seen = time.time() - start
        until("runs[0].read===1&&runs[0].samples===1000000", "10^6 answers")
        print(f"10^5 steps x 60 metrics: seen after {seen:.2f} s, 10^6 answers read after {time.time() - start:.2f} s")
        every_view(page, "large")
        page.open("&v=answers&sort=-score")
        until("listing.total===1000000&&listing.rows.size>10", "a million, the best first")
        browser.js("document.getElementById('list').scrollTop=4e6")
        until("Math.abs(firstRow()-500000)<200&&listing.rows.has(Math.floor(firstRow()))&&document.querySelectorAll('#window .row .score').length>10", "the middle")
        browser.js("document.getElementById('list').scrollTop=1e9")
        until("listing.rows.has(999999)", "the end")
        picture("large-list")
        page.open("&v=answers&q=of%20step%2099991%3A")
        until("listing.total===10&&document.getElementById('ask-total').textContent.includes('10 of')", "text in a million")
        quiet("large")


def narrow():
    with Page("whole", "faster", "shorter") as page:
        for name, w, h in (("wide80", 1120, 900), ("narrow", 700, 900)):
            browser.size(w, h)
            page.open()
            until("plots.filter(p=>p.data.length).length>=2&&!busy", name)
            picture(name + "-curves")
            page.open("&v=answers")
            until("listing.rows.size>0&&current", name + ": answers")
            picture(name + "-answers")
            ok(js("document.documentElement.scrollWidth<=innerWidth"), f"{name}: wider than the window")
        browser.size(1400, 900)


def refused():
    with Page("whole") as page:
        browser.open(page.url.split("#")[0] + "#t=" + "0" * 32)
        until("document.getElementById('say').textContent.includes('token')&&document.querySelector('#say input')", "a wrong token is said")
        picture("token")


try:
    for part in (whole, three, hostile, damaged, live, narrow, refused, large):
        part()
finally:
    browser.close()
open("counts", "w").write(f"{passed} {failed}")
