"""browser.py - Chromium by its driver (the WebDriver protocol, by the standard library alone): open, look, click, picture."""
import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request


def there():
    return shutil.which("chromium") and shutil.which("chromedriver")


class Browser:
    def __init__(self, width=1400, height=900, dark=False, scale=1):
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        self.port = s.getsockname()[1]
        s.close()
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                f"--force-device-scale-factor={scale}", f"--window-size={width},{height}"]
        if dark:
            args.append("--blink-settings=preferredColorScheme=0")
        caps = {"alwaysMatch": {"goog:chromeOptions": {"args": args, "binary": shutil.which("chromium")}, "goog:loggingPrefs": {"browser": "ALL"}}}
        self.session = self.call("POST", "/session", {"capabilities": caps})["sessionId"]
        self.size(width, height)

    def call(self, method, path, body=None):
        req = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(req, timeout=120) as r:
                return json.load(r)["value"]
        except urllib.error.HTTPError as e:
            raise RuntimeError(json.load(e)["value"]["message"][:2000]) from None

    def do(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def size(self, w, h):
        self.do("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {"width": w, "height": h, "deviceScaleFactor": 1, "mobile": False}})

    def open(self, url):
        self.do("POST", "/url", {"url": "about:blank"})
        self.do("POST", "/url", {"url": url})

    def js(self, code, *args):
        return self.do("POST", "/execute/sync", {"script": code, "args": list(args)})

    def wait(self, code, what, seconds=60):
        """Until the expression is true."""
        for _ in range(seconds * 20):
            v = self.js("return (() => { try { return " + code + " } catch (e) { return null } })()")
            if v:
                return v
            time.sleep(0.05)
        raise SystemExit(f"FAILED: {what}: still not {code}; {self.log()}")

    def click(self, css, x=None, y=None):
        r = self.js("const r=document.querySelector(arguments[0]).getBoundingClientRect();return [r.left,r.top,r.width,r.height]", css)
        self.mouse([(r[0] + (r[2] / 2 if x is None else x), r[1] + (r[3] / 2 if y is None else y))])

    def mouse(self, points, press=True, times=1):
        acts = [{"type": "pointerMove", "duration": 0, "x": int(points[0][0]), "y": int(points[0][1])}]
        for _ in range(times):
            acts += [{"type": "pointerDown", "button": 0}] if press else []
            acts += [{"type": "pointerMove", "duration": 50, "x": int(x), "y": int(y)} for x, y in points[1:]]
            acts += [{"type": "pointerUp", "button": 0}] if press else []
        self.do("POST", "/actions", {"actions": [{"type": "pointer", "id": "m", "parameters": {"pointerType": "mouse"}, "actions": acts}]})

    def keys(self, text):
        acts = [a for c in text for a in ({"type": "keyDown", "value": c}, {"type": "keyUp", "value": c})]
        self.do("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": acts}]})

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.do("GET", "/screenshot")))

    def log(self):
        return [e["message"] for e in self.do("POST", "/se/log", {"type": "browser"}) if e["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.do("DELETE", "")
        except Exception:
            pass
        self.driver.terminate()
        self.driver.wait()
