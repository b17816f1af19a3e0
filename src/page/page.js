// page.js - the page of runs.  Text of models and data goes in by textContent alone; nothing is loaded from elsewhere.
"use strict";
const $ = id => document.getElementById(id);
const el = (name, cls, text) => { const e = document.createElement(name); if (cls) e.className = cls; if (text != null) e.textContent = text; return e; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = k => css("--c" + k % 8);
const dash = k => [[], [6, 3], [2, 2], [8, 3, 2, 3]][Math.floor(k / 8) % 4];

// ---- state: in the fragment, so that a link says what is seen; the token never leaves it but in a header
const state = new URLSearchParams(location.hash.slice(1));
const token = () => state.get("t") || "";
function keep(change, entry) {
  for (const k in change) change[k] == null || change[k] === "" ? state.delete(k) : state.set(k, change[k]);
  const url = "#" + state;
  if (entry && url !== location.hash) history.pushState(null, "", url); else history.replaceState(null, "", url);
}

// ---- asking
async function get(path, signal) {
  const r = await fetch("api/" + path, { headers: { "X-Hone-Token": token() }, signal });
  if (r.ok) return r.json();
  const e = new Error((await r.json().catch(() => ({}))).error?.message || "answer " + r.status);
  e.status = r.status;
  throw e;
}
function trouble(e) {
  if (e.name === "AbortError") return;
  const s = $("say");
  s.hidden = false;
  if (e.status === 401) {
    s.replaceChildren("This page needs the token of the server that is running now: open the address that hone page printed, or paste it (it is in RUN/page.url) ");
    const i = el("input");
    i.placeholder = "http://127.0.0.1:8265/#t=...";
    i.onchange = () => { const t = /[0-9a-f]{32}/.exec(i.value); if (t) { keep({ t: t[0] }); location.reload(); } };
    s.append(i);
  } else s.textContent = e.status ? e.message : "hone page does not answer: has it ended?";
}
const calm = () => { $("say").hidden = true; };

// ---- numbers and text
function num(v, digits = 4) {
  if (v == null || !isFinite(v)) return "–";
  if (Number.isInteger(v) && Math.abs(v) < 1e6) return String(v);
  const a = Math.abs(v);
  if (a !== 0 && (a >= 1e6 || a < 1e-4)) return v.toExponential(digits - 2).replace("e+", "e").replace("-", "−");
  return String(+v.toPrecision(digits)).replace("-", "−");
}
function span(s) {
  if (s == null || !isFinite(s)) return "–";
  if (s < 90) return num(s, 3) + " s";
  if (s < 5400) return num(s / 60, 2) + " min";
  return s < 172800 ? num(s / 3600, 3) + " h" : num(s / 86400, 3) + " days";
}
const bytes = b => b >= 1e9 ? num(b / 1e9, 3) + " GB" : num(b / 1e6, 3) + " MB";
// Control characters and those that turn or hide text are shown by their number.
const STEERS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;
function say(to, text) {
  let at = 0;
  for (const m of text.matchAll(STEERS)) {
    if (m.index > at) to.append(text.slice(at, m.index));
    to.append(el("span", "u", "U+" + m[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")));
    at = m.index + m[0].length;
  }
  if (at < text.length) to.append(text.slice(at));
  return to;
}
const plain = text => text.replace(STEERS, c => "⟨" + c.codePointAt(0).toString(16).toUpperCase() + "⟩");

// ---- runs
let runs = [], details = [], hidden = new Set((state.get("off") || "").split(",").filter(Boolean).map(Number));
const shown = () => runs.filter((r, i) => !hidden.has(i));
const lead = () => Math.max(0, runs.findIndex((r, i) => !hidden.has(i)));

function drawRuns() {
  const box = $("runs");
  box.replaceChildren(...runs.map((r, i) => {
    const b = el("button", "run" + (hidden.has(i) ? " off" : "")), top = el("div", "top");
    b.setAttribute("aria-pressed", !hidden.has(i));
    b.title = plain(r.dir) + (runs.length > 1 ? "\nclick: show or hide" : "");
    if (runs.length > 1) {
      const c = el("canvas", "swatch");
      c.width = 36; c.height = 20;
      const g = c.getContext("2d");
      g.strokeStyle = colour(i); g.lineWidth = 5; g.setLineDash(dash(i).map(x => 2 * x));
      g.beginPath(); g.moveTo(0, 10); g.lineTo(36, 10); g.stroke();
      top.append(c);
    }
    top.append(el("span", "name", plain(r.name)), el("span", "state " + r.state, r.elsewhere ? r.state + " elsewhere" : r.state === "gone" ? "ended without a word" : r.state));
    const how = el("div", "how"), left = r.steps > r.step && r.state === "training" ? (r.steps - r.step) * r.usual_step_s : null;
    how.append(el("span", "", r.step < 0 ? "no step yet" : "step " + r.step + (r.steps ? " of " + r.steps : "")));
    if (left) how.append(el("span", "", span(left) + " left"));
    if (r.usual_step_s) how.append(el("span", "", span(r.usual_step_s) + " a step"));
    if (r.score != null) how.append(el("span", "", "score " + num(r.score, 3)));
    const d = details[i];
    if (d) how.append(badge(d.badge));
    if (r.read < 1) how.append(el("span", "", "reading " + Math.floor(100 * r.read) + " %"));
    if (r.damaged[0] + r.damaged[1]) {
      const s = el("span", "badge bad", r.damaged[0] + r.damaged[1] + " damaged lines");
      s.title = r.damaged[0] + " of metrics.jsonl, " + r.damaged[1] + " of samples.jsonl were passed over";
      how.append(s);
    }
    const meter = el("div", "meter"), fill = el("i");
    fill.style.width = (r.steps > 0 && r.step > 0 ? Math.min(100, 100 * r.step / r.steps) : 0) + "%";
    meter.append(fill);
    b.append(top, how, meter);
    if (r.why && r.state !== "training") b.append(el("div", "dim", plain(r.why)));
    b.onclick = () => {
      if (runs.length < 2) return;
      hidden.has(i) ? hidden.delete(i) : hidden.add(i);
      if (hidden.size === runs.length) hidden.clear();
      keep({ off: [...hidden].join(",") });
      drawRuns(); refresh(true);
    };
    return b;
  }));
  const n = details.reduce((s, d) => s + (d?.alerts.length || 0), 0), bad = details.some(d => d?.alerts.some(a => a.level === "error"));
  drawNav(n, bad);
  document.title = (runs.length === 1 ? plain(runs[0].name) + " · " : "") + "hone";
}
function badge(b) {
  if (b.exact === "not a number" || b.exact > 0) return el("span", "badge bad", "✗ exact diff " + (b.exact > 0 ? num(b.exact) : b.exact) + " at step " + b.step);
  if (b.exact === 0) { const s = el("span", "badge ok", "✓ exact diff 0"); s.title = num(b.tokens) + " log-probs of the sampler were compared with the trainer's"; return s; }
  return el("span", "badge none", "exact diff: none compared");
}

// ---- views
const VIEWS = { curves: "Curves", answers: "Answers", time: "Time", config: "Config", log: "Log" };
const view = () => VIEWS[state.get("v")] ? state.get("v") : "curves";
function drawNav(alerts, bad) {
  $("views").replaceChildren(...Object.entries(VIEWS).map(([k, name]) => {
    const a = el("a", "", name);
    a.href = "#" + (() => { const s = new URLSearchParams(state); s.set("v", k); return s; })();
    a.onclick = e => { e.preventDefault(); go(k); };
    if (k === view()) a.setAttribute("aria-current", "page");
    if (k === "log" && alerts) a.append(el("span", "n" + (bad ? " bad" : ""), alerts > 999 ? "999+" : alerts));
    return a;
  }));
}
function go(v, more) { keep({ v, ...more }, true); open_view(); }
function open_view() {
  for (const k in VIEWS) $("v-" + k).hidden = k !== view();
  drawRuns();
  refresh(true);
}

// ---- curves
const range = () => state.has("a") && state.has("b") ? [+state.get("a"), +state.get("b")] : null;
const xOf = () => ["time", "tokens"].includes(state.get("x")) ? state.get("x") : "step";
const xText = v => xOf() === "time" ? span(v) : num(v, 6);
function ticks(lo, hi, n) {
  const raw = (hi - lo) / n, p = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].find(k => k * p >= raw) * p, out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9 && out.length < 20; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return out;
}
class Plot { // spec: {title, names: [metric...], low, high, zero, stack, wide}; data: [{run, k, label, x, lo, hi, mean}]
  constructor(spec) {
    this.spec = spec; this.data = []; this.stamp = "";
    this.f = el("figure", spec.wide ? "wide" : ""); this.f.tabIndex = 0;
    const cap = el("figcaption");
    this.vals = el("span", "vals"); this.c = el("canvas"); this.keyBox = el("div", "key");
    cap.append(el("span", "title", plain(spec.title)), this.vals);
    this.f.append(cap, this.c, this.keyBox);
    this.c.onmousemove = e => { if (this.xr) cursor(this.at(e), this); };
    this.c.onmouseleave = () => cursor(null, this);
    this.c.onmousedown = e => {
      if (!this.xr || e.button) return;
      const from = this.at(e), x0 = e.clientX, up = u => {
        removeEventListener("mouseup", up);
        this.drag = null;
        if (Math.abs(u.clientX - x0) < 5) return this.click(from, u);
        const to = this.at(u);
        zoom(Math.min(from, to), Math.max(from, to));
      };
      this.drag = from;
      addEventListener("mouseup", up);
    };
    this.c.ondblclick = () => zoom(null);
    this.f.onkeydown = e => {
      if (!this.xr || !["ArrowLeft", "ArrowRight", "Escape", "Enter"].includes(e.key)) return;
      e.preventDefault();
      if (e.key === "Escape") return cursor(null, this);
      const xs = this.data[0].x;
      let i = this.cur == null ? xs.length - 1 : nearest(xs, this.cur);
      if (e.key === "Enter") return answersOf(xs[i], this.data[0].x, this.data[0].run);
      i = Math.max(0, Math.min(xs.length - 1, i + (e.key === "ArrowRight" ? 1 : -1)));
      cursor(xs[i], this);
    };
  }
  at(e) { const r = this.c.getBoundingClientRect(), [a, b] = this.xr; return a + (e.clientX - r.left - this.l) / (r.width - this.l - 6) * (b - a); }
  click(x, e) { // a double click is two of these: wait whether another comes
    clearTimeout(this.timer);
    if (e.detail > 1 || xOf() !== "step" || this.spec.noanswers) return;
    this.timer = setTimeout(() => answersOf(x, this.data[0]?.x || [], this.data[0]?.run), 280);
  }
  draw(cur) {
    const c = this.c, d = devicePixelRatio, W = c.clientWidth, H = c.clientHeight, g = c.getContext("2d");
    if (!W) return;
    this.cur = cur;
    c.width = W * d; c.height = H * d; g.scale(d, d);
    const log = $("log-y").checked && !this.spec.stack, T = log ? v => Math.log10(v) : v => v, ok = v => v != null && (!log || v > 0);
    let lo = Infinity, hi = -Infinity, a = Infinity, b = -Infinity;
    for (const s of this.data) for (let i = 0; i < s.x.length; i++) {
      const [p, q] = s.band ? [s.band[0][i] ?? s.mean[i], s.band[1][i] ?? s.mean[i]] : [s.lo[i], s.hi[i]];
      if (ok(p) && T(p) < lo) lo = T(p); if (ok(q) && T(q) > hi) hi = T(q);
      if (s.x[i] < a) a = s.x[i]; if (s.x[i] > b) b = s.x[i];
    }
    g.fillStyle = css("--dim"); g.font = "10.5px system-ui, sans-serif";
    if (!(hi >= lo)) { this.xr = null; g.fillText(this.stamp ? "nothing here" : "…", 12, 24); this.vals.textContent = ""; return; }
    if (this.spec.zero && !log) lo = Math.min(0, lo);
    if (hi - lo <= 1e-12 * Math.max(Math.abs(hi), Math.abs(lo))) { const m = Math.abs(hi) * .05 || .5; lo -= m; hi += m; }
    const whole = range(); if (whole) [a, b] = [Math.min(a, whole[0]), Math.max(b, whole[1])];
    this.xr = [a, b];
    const ys = ticks(lo, hi, 4), label = v => log ? num(10 ** v, 3) : num(v, 4);
    this.l = 8 + Math.max(...ys.map(v => g.measureText(label(v)).width), 20);
    const l = this.l, X = x => l + (b > a ? (x - a) / (b - a) : .5) * (W - l - 6), Y = v => 6 + (1 - (v - lo) / (hi - lo)) * (H - 26);
    g.strokeStyle = css("--line"); g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
    for (const v of ys) { const y = Math.round(Y(v)) + .5; g.beginPath(); g.moveTo(l, y); g.lineTo(W - 6, y); g.stroke(); g.fillText(label(v), l - 4, y); }
    g.textBaseline = "alphabetic";
    const xs = b > a ? ticks(a, b, Math.max(2, Math.floor(W / 110))) : [a];
    xs.forEach(v => { const t = xText(v), w = g.measureText(t).width / 2; g.textAlign = "center"; g.fillText(t, Math.min(W - 2 - w, Math.max(w, X(v))), H - 4); });
    this.data.forEach(s => {
      const col = colour(s.k);
      g.strokeStyle = g.fillStyle = col;
      if (this.spec.stack) {
        g.globalAlpha = .8; g.beginPath();
        for (let i = 0; i < s.x.length; i++) g.lineTo(X(s.x[i]), Y(s.hi[i]));
        for (let i = s.x.length; i--;) g.lineTo(X(s.x[i]), Y(s.lo[i]));
        g.fill(); g.globalAlpha = 1;
        return;
      }
      const bl = s.band ? s.band[0] : s.lo, bh = s.band ? s.band[1] : s.hi;
      g.globalAlpha = .17; g.beginPath();
      for (let i = 0; i < s.x.length; i++) if (ok(bh[i])) g.lineTo(X(s.x[i]), Y(T(bh[i])));
      for (let i = s.x.length; i--;) if (ok(bl[i])) g.lineTo(X(s.x[i]), Y(T(bl[i])));
      g.fill(); g.globalAlpha = 1;
      const m = smoothed(s.mean);
      if (m !== s.mean) { g.globalAlpha = .3; line(s.mean, 1); g.globalAlpha = 1; }
      line(m, 1.5);
      if (s.x.length <= 40) for (let i = 0; i < s.x.length; i++) if (ok(m[i])) { g.beginPath(); g.arc(X(s.x[i]), Y(T(m[i])), s.x.length === 1 ? 3 : 2, 0, 7); g.fill(); }
      function line(v, w) {
        g.lineWidth = w; g.setLineDash(dash(s.k)); g.beginPath();
        for (let i = 0, pen = false; i < s.x.length; i++) { if (!ok(v[i])) { pen = false; continue; } pen ? g.lineTo(X(s.x[i]), Y(T(v[i]))) : g.moveTo(X(s.x[i]), Y(T(v[i]))); pen = true; }
        g.stroke(); g.setLineDash([]);
      }
    });
    if (this.drag != null && cur != null) { g.globalAlpha = .12; g.fillStyle = css("--accent"); g.fillRect(Math.min(X(this.drag), X(cur)), 6, Math.abs(X(cur) - X(this.drag)), H - 26); g.globalAlpha = 1; }
    const inside = cur != null && cur >= a && cur <= b;
    if (inside) { g.strokeStyle = css("--dim"); g.lineWidth = 1; g.beginPath(); g.moveTo(X(cur), 4); g.lineTo(X(cur), H - 18); g.stroke(); }
    this.values(inside ? cur : null);
  }
  values(cur) {
    const parts = this.data.slice(0, 8).map(s => {
      const i = cur == null ? s.x.length - 1 : nearest(s.x, cur), v = this.spec.stack ? s.part[i] : s.mean[i], o = el("span");
      if (this.data.length > 1) { const k = el("i"); k.style.background = colour(s.k); o.append(k); }
      o.append(num(v) + (this.data.length < 3 && s.band && s.band[0][i] != null ? " [" + num(s.band[0][i], 3) + ", " + num(s.band[1][i], 3) + "]" : ""));
      o.title = plain(s.label);
      return o;
    });
    const at = cur == null ? null : this.data[0] ? xText(xOf() === "step" ? Math.round(this.data[0].x[nearest(this.data[0].x, cur)]) : this.data[0].x[nearest(this.data[0].x, cur)]) : "";
    this.vals.replaceChildren(...(at ? [at + ":  "] : []), ...parts.flatMap((p, i) => i ? ["  ", p] : [p]));
  }
  key() {
    const names = [...new Map(this.data.map(s => [s.name, s])).values()], runsToo = new Set(this.data.map(s => s.run)).size > 1;
    this.keyBox.replaceChildren(...(names.length > 1 ? names.map(s => { // runs have their colours above; metrics are told by the dashes then
      const o = el("span"), c = el("canvas", "swatch");
      c.width = 40; c.height = 16;
      const g = c.getContext("2d");
      g.strokeStyle = runsToo ? css("--dim") : colour(s.k); g.lineWidth = this.spec.stack ? 16 : 4; g.setLineDash(this.spec.stack ? [] : dash(s.k).map(x => 2 * x));
      g.beginPath(); g.moveTo(0, 8); g.lineTo(40, 8); g.stroke();
      o.append(c, plain(s.name));
      return o;
    }) : []));
  }
}
function nearest(xs, v) {
  let i = 0, j = xs.length - 1;
  while (i < j) { const m = i + j >> 1; xs[m] < v ? i = m + 1 : j = m; }
  return i > 0 && v - xs[i - 1] < xs[i] - v ? i - 1 : i;
}
function smoothed(v) {
  const k = +$("smooth").value;
  if (!k) return v;
  let s = null, w = 0;
  return v.map(x => { if (x == null) return x; w = k * w + 1; s = s == null ? x : s + (x - s) / w; return s; });
}
let plots = [], timePlots = [];
const live_plots = () => view() === "time" ? timePlots : plots;
let frame = 0;
function cursor(x, of) {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(() => { for (const p of live_plots()) if (p.data.length && p.c.clientWidth && seen(p.c)) p.draw(x); });
}
const seen = e => { const r = e.getBoundingClientRect(); return r.bottom > -50 && r.top < innerHeight + 50; };
function zoom(a, b) { keep({ a, b: a == null ? null : b }); $("whole").hidden = !range(); load(true).catch(trouble); }
function answersOf(x, xs, run) {
  const i = nearest(xs, x), j = Math.max(0, i - 1), k = Math.min(xs.length - 1, i + 1), each = k > j ? (xs[k] - xs[j]) / (k - j) : 1, half = Math.max(0, (each - 1) / 2);
  const a = Math.max(0, Math.round(xs[i] - half)), b = Math.round(xs[i] + half);
  go("answers", { r: run || null, steps: a >= b ? Math.round(xs[i]) : a + "-" + b, sort: "step", id: null });
}
// What is looked at first, in rows; a plot is there where a run has one of its numbers.
const FIRST = [
  ["Reward and validation", [
    { title: "score, mean of a step", names: ["critic/score/mean"] },
    { title: "validation: score and its 95 % interval", names: ["val-core/score/mean"], low: "val-aux/score/low", high: "val-aux/score/high" },
    { title: "right", names: ["reward/acc", "val-core/acc/mean", "val-core/pass", "val-core/maj"] },
    { title: "rewards with penalties", names: ["critic/rewards/mean"] },
    { title: "loss", names: ["train/loss", "val/loss"] },
    { title: "not judged, silent: shares of the answers", names: ["reward/failed_ratio", "perf/silent_ratio"], zero: true }]],
  ["Length", [
    { title: "tokens of an answer", names: ["response_length/mean"] },
    { title: "longest and shortest answer", names: ["response_length/max", "response_length/min"] },
    { title: "why answers ended: shares", names: ["response_length/clip_ratio", "response/aborted_ratio", "response/budget_ratio", "response/no_room_ratio"], zero: true }]],
  ["Learning", [
    { title: "entropy", names: ["actor/entropy"], zero: true },
    { title: "KL to the reference", names: ["actor/kl_loss", "actor/reward_kl_penalty"] },
    { title: "KL of a step's updates", names: ["actor/ppo_kl"] },
    { title: "norm of the gradient", names: ["actor/grad_norm", "train/grad_norm"], zero: true },
    { title: "clipped tokens: share", names: ["actor/pg_clipfrac", "actor/pg_clipfrac_lower"], zero: true },
    { title: "policy loss", names: ["actor/pg_loss"] },
    { title: "learning rate", names: ["actor/lr", "train/lr"], zero: true },
    { title: "largest difference of a log-prob, sampler to trainer: must be 0", names: ["exact/max_abs_logprob_diff", "exact/tokens_different"] }]],
  ["Groups and staleness", [
    { title: "groups: all right, all wrong, mixed", names: ["group/all_right", "group/all_wrong", "group/mixed"], zero: true },
    { title: "advantages", names: ["critic/advantages/max", "critic/advantages/mean", "critic/advantages/min"] },
    { title: "age of the answers' weights", match: /stale|version|queue/ }]],
];
const metricNames = () => { const s = new Map(); details.forEach((d, i) => { if (d && !hidden.has(i)) for (const m of d.metrics) s.set(m.name, 1); }); return [...s.keys()]; };
let madeOf = "";
function makePlots() {
  const names = metricNames(), has = new Set(names), key = names.join("\n");
  if (key === madeOf) return;
  madeOf = key; plots = [];
  const box = $("plots"), part = (title, specs, all) => {
    const there = specs.map(s => ({ ...s, names: s.match ? names.filter(n => s.match.test(n)).slice(0, 8) : s.names.filter(n => has.has(n)) })).filter(s => s.names.length);
    if (!there.length) return [];
    const grid = el("div", "plots"), out = there.map(s => { const p = new Plot(s); plots.push(p); grid.append(p.f); return p; });
    if (all) {
      const d = el("details"); d.id = "all"; d.append(el("summary", "", title), grid); d.open = state.has("all");
      d.ontoggle = () => { keep({ all: d.open ? 1 : null }); if (d.open) load().catch(trouble); };
      box.append(d);
    } else box.append(el("h2", "", title), grid);
    return out;
  };
  box.replaceChildren();
  for (const [title, specs] of FIRST) part(title, specs);
  part("All " + names.length + " metrics", names.map(n => ({ title: n, names: [n], all: true })), true);
  if (!names.length) box.append(el("div", "empty", "No step is written yet."));
  filterPlots();
}
function filterPlots() {
  const q = $("filter").value.toLowerCase();
  if (q && $("all")) $("all").open = true;
  for (const p of plots) p.f.hidden = q && !(p.spec.title + " " + p.spec.names.join(" ")).toLowerCase().includes(q);
  load().catch(trouble);
}
let abort;
async function load(fresh) { // the plots that are to be seen; one request a run for up to 60 metrics
  if (!["curves", "time"].includes(view())) return;
  abort?.abort(); abort = new AbortController();
  const signal = abort.signal, r = range(), base = xOf() + "|" + (r || "") + "|" + [...hidden];
  const want = live_plots().filter(p => p.c.clientWidth && seen(p.f) && (fresh || p.stamp !== base + version()));
  if (!want.length) return;
  const px = Math.min(1000, Math.max(100, Math.round(want[0].c.clientWidth)));
  for (const zero of [false, true]) {
    const mine = want.filter(p => !!p.spec.stack === zero), names = [...new Set(mine.flatMap(p => [...p.spec.names, p.spec.low, p.spec.high].filter(Boolean)))];
    const got = runs.map(() => new Map());
    for (let at = 0; at < names.length; at += 60) {
      const some = names.slice(at, at + 60), q = "&x=" + xOf() + "&px=" + px + (r ? "&from=" + r[0] + "&to=" + r[1] : zero ? "&from=0.001" : "") + (zero ? "&fill=zero" : "") + "&names=" + encodeURIComponent(some.join("\n") + "\n");
      await Promise.all(runs.map(async (run, i) => {
        if (hidden.has(i)) return;
        const m = await get("metrics?run=" + i + q, signal);
        some.forEach((n, k) => { if (m.series[k]?.x.length) got[i].set(n, m.series[k]); });
      }));
    }
    for (const p of mine) { p.data = series(p.spec, got); p.stamp = base + version(); p.key(); p.draw(p.cur); }
  }
  calm();
}
function series(spec, got) {
  const out = [], many = shown().length > 1;
  runs.forEach((run, i) => {
    if (hidden.has(i) || (spec.stack && i !== lead())) return;
    let under = null;
    spec.names.forEach((n, k) => {
      const s = got[i].get(n);
      if (!s) return;
      const d = { run: i, name: n, k: many && !spec.stack ? i + 8 * k : k, label: (many && !spec.stack ? run.name + (spec.names.length > 1 ? " · " + n : "") : n), ...s };
      if (spec.low && got[i].get(spec.low)) {
        const l = got[i].get(spec.low), h = got[i].get(spec.high), by = new Map(l.x.map((x, j) => [x, j]));
        d.band = [s.x.map(x => l.mean[by.get(x)] ?? null), s.x.map(x => h?.mean[by.get(x)] ?? null)];
      }
      if (spec.stack) {
        d.part = s.mean; d.lo = under || s.mean.map(() => 0); d.hi = s.mean.map((v, j) => (v || 0) + (d.lo[j] || 0)); under = d.hi;
      }
      out.push(d);
    });
  });
  return out;
}
const version = () => runs.reduce((s, r, i) => s + (hidden.has(i) ? 0 : r.version), 0);

// ---- answers: a window of rows of a list of any length.  Browsers cap an element's height, so the scroll is scaled.
const ROW = 42, TALL = 8e6;
let listing = { total: 0, rows: new Map(), key: "" }, chosen = -1, current = null;
const askRun = () => Math.min(runs.length - 1, Math.max(0, +(state.get("r") ?? lead())));
function askQuery() {
  const s = state, q = new URLSearchParams({ run: askRun() }), steps = s.get("steps") || "", m = /^\s*(\d+)\s*(?:-|–|to|\.\.)\s*(\d+)\s*$/.exec(steps);
  if (m) { q.set("from", m[1]); q.set("to", m[2]); } else if (/^\s*\d+\s*$/.test(steps)) q.set("step", +steps);
  for (const k of ["min", "max", "finish", "q", "row"]) if (s.get(k)) q.set(k, s.get(k));
  q.set("sort", s.get("sort") || "-step");
  return q;
}
function fillAsk() {
  const s = state, sel = $("ask-run");
  $("ask-run-label").hidden = runs.length < 2;
  if (sel.options.length !== runs.length) sel.replaceChildren(...runs.map((r, i) => { const o = el("option", "", plain(r.name)); o.value = i; return o; }));
  sel.value = askRun();
  for (const [id, k] of [["ask-steps", "steps"], ["ask-min", "min"], ["ask-max", "max"], ["ask-q", "q"]]) if (document.activeElement !== $(id)) $(id).value = s.get(k) || "";
  const f = $("ask-finish"), kinds = details[askRun()]?.finishes || [];
  if (f.options.length !== kinds.length + 1) { f.replaceChildren(el("option", "", "any")); f.options[0].value = ""; for (const k of kinds) f.append(el("option", "", plain(k))); }
  f.value = s.get("finish") || "";
  $("ask-sort").value = s.get("sort") || "-step";
}
let listAbort, again = 0;
async function openList() {
  fillAsk();
  const key = askQuery() + "";
  if (key !== listing.key) { listing = { total: 0, rows: new Map(), key }; $("list").scrollTop = 0; chosen = -1; $("window").replaceChildren(); }
  await rows(true);
  const id = state.get("id");
  if (id != null && (!current || current.id !== +id || current.run !== askRun())) show(+id).catch(trouble);
  else if (id == null && listing.rows.has(0)) show(listing.rows.get(0).id).catch(trouble);
  if (id == null && !listing.total) { $("one").replaceChildren(el("div", "empty", "No answer is shown yet.")); current = null; }
}
const scale = () => { const L = $("list"), H = Math.min(listing.total * ROW, TALL), n = Math.ceil(L.clientHeight / ROW); return { H, n, most: Math.max(0, listing.total - n + 1), room: Math.max(1, H - L.clientHeight) }; };
function firstRow() { const s = scale(); return Math.max(0, Math.min(s.most, $("list").scrollTop / s.room * (s.most))); }
async function rows(fresh) {
  const n = Math.ceil($("list").clientHeight / ROW) + 2, first = Math.floor(firstRow()), key = listing.key;
  let missing = fresh;
  for (let i = first; i < Math.min(first + n, listing.total) && !missing; i++) missing = !listing.rows.has(i);
  if (missing) {
    listAbort?.abort(); listAbort = new AbortController();
    const from = Math.max(0, first - 20), r = await get("samples?" + key + "&first=" + from + "&n=" + Math.min(200, n + 60), listAbort.signal);
    if (key !== listing.key) return;
    if (fresh || listing.rows.size > 3000) listing.rows.clear();
    listing.total = r.total;
    r.rows.forEach((x, i) => listing.rows.set(from + i, x));
    $("ask-total").textContent = num(r.total).replace(/\B(?=(\d{3})+$)/g, " ") + " of " + num(r.of) + " answers" + (r.done ? "" : " · looking, " + Math.floor(100 * r.scanned / Math.max(1, r.of)) + " %");
    clearTimeout(again);
    if (!r.done) again = setTimeout(() => { if (view() === "answers") rows(true).catch(trouble); }, 30);
  }
  drawRows();
}
function drawRows() {
  const L = $("list"), s = scale(), at = firstRow(), first = Math.floor(at), box = $("window");
  $("pad").style.height = s.H + "px";
  const scaled = s.H >= TALL; // then a row's place is where the window is, not a multiple of its number
  box.style.top = (scaled ? L.scrollTop - (at - first) * ROW : first * ROW) + "px";
  let lo = 0, hi = 1;
  for (const r of listing.rows.values()) if (r.score != null) { lo = Math.min(lo, r.score); hi = Math.max(hi, r.score); }
  const out = [];
  for (let i = first; i < Math.min(first + s.n + 1, listing.total); i++) {
    const r = listing.rows.get(i), e = el("div", "row");
    e.setAttribute("role", "option");
    e.setAttribute("aria-selected", current && r && current.id === r.id);
    if (r) {
      const st = el("div", "st"), sc = el("div"), t = el("div", "text"), tick = el("span", "tick"), fill = el("i");
      st.append(el("div", "", String(r.step)), el("div", "", r.tokens < 0 ? "" : r.tokens + " tok"));
      fill.style.width = (r.score == null ? 0 : 100 * (r.score - lo) / (hi - lo)) + "%";
      tick.append(fill);
      sc.append(el("span", "score", r.score == null ? "–" : num(r.score, 3)), tick);
      const q = el("div", "q"), o = el("div");
      q.textContent = plain((r.input || "").replace(/\s+/g, " ").slice(-160)); o.textContent = plain((r.output || (r.output == null ? "(damaged line)" : "(empty)")).replace(/\s+/g, " "));
      t.append(q, o);
      e.append(st, sc, t);
      e.onclick = () => { chosen = i; keep({ id: r.id }); show(r.id).catch(trouble); };
    }
    out.push(e);
  }
  if (!listing.total) out.push(el("div", "empty", "Nothing fits."));
  box.replaceChildren(...out);
}

// ---- one answer
let tint = localStorage.getItem("hone.tint") || "logprob", lookAt = "answer";
const TINTS = { none: "no colour", logprob: "log-prob", entropy: "entropy", advantage: "advantage" };
async function show(id) {
  const run = askRun(), s = await get("sample?run=" + run + "&id=" + id);
  if (view() !== "answers") return;
  current = { id, run, s };
  drawRows(); drawOne();
  calm();
}
function facts(s) {
  const f = el("div", "facts"), put = (k, v) => { const o = el("span"); o.append(k + " ", el("b", "", v)); f.append(o); };
  put("step", s.step); if (s.row >= 0) put("question", s.row); if (s.sample >= 0) put("answer", s.sample);
  put("score", num(s.score)); put("advantage", num(s.advantage)); if (s.finish) put("finish", plain(s.finish)); if (s.tokens >= 0) put("tokens", s.tokens);
  return f;
}
function block(kind, who, more) { const b = el("div", "block " + kind), w = el("div", "who"); w.append(el("span", "", who), ...(more || [])); b.append(w); return b; }
const str = v => typeof v === "string" ? v : v == null ? "" : JSON.stringify(v, null, 1);
function scaleOf(parts) { // what is full colour: 95 % of the tokens have less
  const v = (parts[tint] || []).filter(x => x != null).map(Math.abs).sort((a, b) => a - b), q = v[Math.floor(.95 * (v.length - 1))];
  return tint === "logprob" ? Math.max(1, Math.min(8, q || 1)) : q > 0 ? q : 1;
}
function tokens(to, parts, most) {
  const v = parts[tint], top = most || scaleOf(parts);
  parts.id.forEach((id, i) => {
    const text = parts.text ? parts.text[i] : " " + id, t = el("span", "tok"), x = v ? v[i] : null;
    if (text === "") { t.classList.add("part"); t.append("⟨" + (id & 0xffffff).toString(16) + "⟩"); } else say(t, text);
    if (x != null) t.style.background = "rgba(var(" + (tint === "advantage" && x < 0 ? "--cold" : "--heat") + ")," + (.6 * Math.min(1, Math.abs(x) / top)).toFixed(3) + ")";
    if (!parts.mask[i]) t.classList.add("given");
    t.title = "token " + (parts.from + i) + " · id " + id + "\nlog-prob " + num(parts.logprob[i], 5) + "\nentropy " + num(parts.entropy[i], 4) + "\nadvantage " + num(parts.advantage[i], 4)
      + "\nweights after " + parts.version[i] + " steps" + (parts.mask[i] ? "" : "\nnot the model's: not learned");
    to.append(t);
  });
}
function answerText(s, to) {
  const p = s.parts;
  if (!p || p.gone || !p.text) return say(to, str(s.line?.output));
  tokens(to, p);
  if (p.from + p.id.length < p.of) {
    const b = el("button", "", "… " + (p.of - p.from - p.id.length) + " more tokens");
    b.onclick = async () => {
      b.remove();
      const n = await get("sample?run=" + current.run + "&id=" + s.id + "&token=" + (p.from + p.id.length)).catch(trouble);
      if (n?.parts) { const more = el("span"); to.append(more); answerText({ ...s, parts: n.parts }, more); }
    };
    to.append(b);
  }
  return to;
}
function drawOne() {
  const s = current.s, box = $("one"), top = el("div", "tools"), modes = { answer: "answer", group: "group (" + s.group.length + ")", again: "same question (" + s.again.length + ")" };
  if (!modes[lookAt] || (lookAt !== "answer" && s[lookAt].length < 2)) lookAt = "answer";
  for (const k in modes) {
    const b = el("button", "", modes[k]); b.type = "button"; b.disabled = k !== "answer" && s[k].length < 2;
    b.setAttribute("aria-pressed", k === lookAt);
    b.onclick = () => { lookAt = k; drawOne(); };
    top.append(b);
  }
  const coloured = s.parts && !s.parts.gone;
  if (coloured || lookAt !== "answer") {
    const sel = el("select");
    for (const k in TINTS) { const o = el("option", "", TINTS[k]); o.value = k; sel.append(o); }
    sel.value = tint;
    sel.setAttribute("aria-label", "colour of tokens");
    sel.onchange = () => { tint = sel.value; localStorage.setItem("hone.tint", tint); drawOne(); };
    top.append(sel);
    if (tint !== "none" && coloured) top.append(legend(scaleOf(s.parts)));
  } else top.append(el("span", "dim", s.parts?.gone ? "this answer's tokens were let go (trainer.tokens_newest)" : s.line && s.line.at == null ? "no per-token numbers were written" : ""));
  box.replaceChildren(facts(s), top);
  if (!s.line) return box.append(el("div", "empty", "The line in samples.jsonl is damaged."));
  if (lookAt === "answer") oneAnswer(s, box); else sideBySide(s, box);
}
function legend(top) {
  const l = el("span", "legend"), bar = el("i"), both = tint === "advantage";
  bar.style.background = both ? "linear-gradient(90deg, rgba(var(--cold),.6), transparent, rgba(var(--heat),.6))" : "linear-gradient(90deg, transparent, rgba(var(--heat),.6))";
  l.append(both ? num(-top, 2) : "0", bar, tint === "logprob" ? "−" + num(top, 2) : num(top, 2));
  return l;
}
function oneAnswer(s, box) {
  const l = s.line;
  if (Array.isArray(l.turns) && l.turns.length) turns(s, box);
  else {
    const q = block("given", "prompt"), a = block("model", "answer");
    q.append(say(el("div", "said"), str(l.input))); a.append(answerText(s, el("div", "said")));
    box.append(q, a);
    if (s.parts && !s.parts.gone && !s.parts.text) a.append(el("div", "dim", "the run's tokenizer was not found: no colours"));
  }
  if (l.gts != null && l.gts !== "") { const g = block("", "right answer"); g.append(say(el("div", "said"), str(l.gts))); box.append(g); }
  if (l.failed) { const f = block("reason", "not judged"); f.append(say(el("div", "said"), str(l.reason))); box.append(f); }
  const known = new Set(["step", "row", "sample", "score", "advantage", "finish", "tokens", "input", "output", "gts", "failed", "reason", "at", "turns"]);
  const rest = Object.entries(l).filter(([k]) => !known.has(k));
  if (rest.length) { const r = block("", "also written"); r.append(say(el("div", "said"), JSON.stringify(Object.fromEntries(rest), null, 1))); box.append(r); }
}
function turns(s, box) {
  for (const t of s.line.turns) {
    if (!t || typeof t !== "object") continue;
    const own = t.mask === 1 || t.mask === true, b = block(own ? "model" : t.role === "tool" ? "tool given" : "given", plain(str(t.role) || "turn"),
      [...(t.reward != null ? [el("span", "", "reward " + num(+t.reward))] : []), ...(own ? [] : [el("span", "", "not learned")])]);
    b.append(say(el("div", "said"), str(t.text)));
    for (const c of [].concat(t.calls || [])) { const k = block("tool", "calls " + plain(str(c?.name ?? ""))); k.append(say(el("div", "said"), str(c?.arguments ?? c))); b.append(k); }
    box.append(b);
  }
  if (s.parts && !s.parts.gone && s.parts.text) { const d = el("details"); d.append(el("summary", "", "token by token"), answerText(s, el("div", "said"))); box.append(d); }
}
async function sideBySide(s, box) {
  const ids = (lookAt === "group" ? s.group : s.again).slice(0, 64), q = block("given", "prompt"), cards = el("div", "cards"), run = current.run;
  q.append(say(el("div", "said"), str(s.line.input)));
  box.append(q, cards);
  if (s.line.gts) { const g = block("", "right answer"); g.append(say(el("div", "said"), str(s.line.gts))); box.insertBefore(g, cards); }
  for (let at = 0; at < ids.length; at += 8) {
    const some = await Promise.all(ids.slice(at, at + 8).map(i => i === s.id ? s : get("sample?run=" + run + "&id=" + i))).catch(trouble);
    if (!some || current.s !== s || !cards.isConnected) return;
    for (const o of some) {
      const c = el("div", "card" + (o.id === s.id ? " me" : "")), f = facts(o), m = el("div", "said");
      f.title = "show this one"; f.onclick = () => { lookAt = "answer"; keep({ id: o.id }); show(o.id).catch(trouble); };
      c.append(f, o.line?.turns ? say(m, o.line.turns.map(t => (t?.role || "") + ": " + str(t?.text)).join("\n")) : answerText(o, m));
      if (o.line?.failed) c.append(say(el("div", "dim"), "not judged: " + str(o.line.reason)));
      cards.append(c);
    }
  }
}

// ---- time
const PHASES = ["gen", "reward", "ref", "adv", "exact", "update_actor", "sync", "testing", "save_checkpoint", "other"], PREDICTED = { gen: "rollout", ref: "reference", update_actor: "update", sync: "sync" };
const RANKS = /(^|[/_])(ranks?|slowest|fastest|straggler|skew|wait)([/_]|$)/;
let timeOf = "";
async function openTime() {
  const box = $("v-time"), names = metricNames(), has = new Set(names), i = lead(), d = details[i], key = i + "|" + names.join();
  if (key !== timeOf) {
    timeOf = key; timePlots = [];
    const grid = (title, specs) => {
      const there = specs.map(s => ({ ...s, names: s.match ? names.filter(n => s.match.test(n)).slice(0, 16) : s.names.filter(n => has.has(n)) })).filter(s => s.names.length);
      if (!there.length) return;
      const g = el("div", "plots");
      for (const s of there) { const p = new Plot({ noanswers: true, ...s }); timePlots.push(p); g.append(p.f); }
      box.append(el("h2", "", title), g);
    };
    const strip = el("div", "strip"); strip.id = "system";
    const table = el("div"); table.id = "phases";
    box.replaceChildren();
    grid("Where a step's time goes" + (runs.length > 1 ? ": " + plain(runs[i].name) : ""), [{ title: "seconds of a step, by phase", names: PHASES.map(p => "timing_s/" + p), stack: true, wide: true }]);
    box.append(table);
    grid("Ranks", [{ title: "ranks, and the slowest", match: RANKS, wide: true }]);
    grid("Speed and memory", [{ title: "tokens a second", names: ["perf/throughput"], zero: true }, { title: "use of the peak (MFU)", names: ["perf/mfu/actor", "perf/mfu/actor_verl"], zero: true },
      { title: "seconds of a step", names: ["timing_s/step"], zero: true }, { title: "memory of the process, GB", names: ["perf/cpu_memory_used_gb", "perf/cpu_memory_peak_gb"], zero: true },
      { title: "memory of the GPU, GB", names: ["perf/gpu_memory_used_gb", "perf/gpu_memory_planned_gb"], zero: true }, { title: "ms a token", names: ["timing_per_token_ms/gen", "timing_per_token_ms/update_actor", "timing_per_token_ms/ref"], zero: true }]);
    box.append(el("h2", "", "This machine, now"), strip);
    if (!timePlots.length) box.prepend(el("div", "empty", "No step is written yet."));
  }
  await Promise.all([load(), phaseTable(d, i, has), system()]);
}
async function phaseTable(d, i, has) {
  const names = PHASES.map(p => "timing_s/" + p).filter(n => has.has(n)), r = range();
  if (!d || !names.length) return $("phases")?.replaceChildren();
  const q = "&px=1&fill=zero&names=" + encodeURIComponent([...names, "timing_s/step"].join("\n") + "\n") + (r && xOf() === "step" ? "&from=" + r[0] + "&to=" + r[1] : "&from=1");
  const m = await get("metrics?run=" + i + q), mean = m.series.map(s => s?.mean[0] ?? null), all = mean[names.length], t = el("table"), head = el("tr"), p = d.predicted;
  for (const h of ["phase", "seconds a step", "share", ...(p ? ["predicted", "off by"] : [])]) head.append(el("th", h === "phase" ? "" : "num", h));
  t.append(head);
  names.forEach((n, k) => {
    const tr = el("tr"), ph = n.slice(9), v = mean[k], w = p?.[PREDICTED[ph]];
    tr.append(el("td", "", ph), el("td", "num", num(v)), el("td", "num", all ? num(100 * v / all, 3) + " %" : "–"));
    if (p) tr.append(el("td", "num", w != null ? num(w) : "–"), el("td", "num", w != null && v ? (w >= v ? "+" : "−") + num(Math.abs(100 * (w / v - 1)), 2) + " %" : "–"));
    t.append(tr);
  });
  $("phases")?.replaceChildren(t, el("p", "dim", p ? "Predicted by the planner (hone plan) for this run's shape." : "What the planner predicts is written when the run ends."));
}
let cpuWas = null;
async function system() {
  const s = await get("system?run=" + lead()), box = $("system"), put = (k, v, share) => {
    const g = el("div", "g"), o = el("div"); o.append(el("span", "dim", k + " "), el("b", "", v));
    g.append(o);
    if (share != null) { const m = el("div", "meter"), i = el("i"); i.style.width = 100 * Math.min(1, Math.max(0, share)) + "%"; m.append(i); g.append(m); }
    box.append(g);
  };
  if (!box) return;
  box.replaceChildren();
  const cpu = cpuWas && s.cpu[1] > cpuWas[1] ? (s.cpu[0] - cpuWas[0]) / (s.cpu[1] - cpuWas[1]) : null;
  cpuWas = s.cpu;
  put(s.cores + " cores", cpu == null ? "…" : Math.round(100 * cpu) + " %", cpu ?? 0);
  put("memory of " + bytes(s.memory_bytes), s.memory == null ? "–" : Math.round(100 * s.memory) + " %", s.memory);
  put("disk", bytes(s.disk_free) + " free", s.disk);
  for (const g of s.gpus) put(plain(g.name), Math.round(100 * g.use) + " % · " + bytes(g.memory * g.memory_bytes) + " · " + g.celsius + " °C · " + g.watts + " W", g.use);
}

// ---- configuration
function openConfig() {
  const box = $("v-config"), idx = runs.map((r, i) => i).filter(i => !hidden.has(i) && details[i]), keys = [...new Set(idx.flatMap(i => Object.keys(details[i].config)))];
  const text = v => v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v), differs = k => new Set(idx.map(i => text(details[i].config[k]))).size > 1;
  let bar = $("config-bar");
  if (!bar) {
    bar = el("div", "bar"); bar.id = "config-bar";
    const q = el("input"), l = el("label"), c = el("input");
    q.type = "search"; q.id = "config-q"; q.placeholder = "filter settings"; c.type = "checkbox"; c.id = "config-only"; c.checked = idx.length > 1;
    q.oninput = c.onchange = openConfig;
    l.append(c, "only what differs"); l.id = "config-only-label";
    bar.append(q, l, el("span", "dim"));
    const t = el("div"); t.id = "config-table";
    box.replaceChildren(bar, t);
  }
  $("config-only-label").hidden = idx.length < 2;
  const q = $("config-q").value.toLowerCase(), only = idx.length > 1 && $("config-only").checked, t = el("table"), head = el("tr");
  head.append(el("th", "", "setting"), ...idx.map(i => el("th", "", plain(runs[i].name))));
  t.append(head);
  let n = 0;
  for (const k of keys.sort((a, b) => differs(b) - differs(a))) {
    const d = idx.length > 1 && differs(k);
    if ((only && !d) || (q && !(k + " " + idx.map(i => text(details[i].config[k])).join(" ")).toLowerCase().includes(q))) continue;
    const tr = el("tr", d ? "differs" : "");
    tr.append(el("td", "", plain(k)), ...idx.map(i => el("td", "", plain(text(details[i].config[k])))));
    t.append(tr); n++;
  }
  bar.lastChild.textContent = n + " of " + keys.length + " settings";
  $("config-table").replaceChildren(n ? t : el("div", "empty", keys.length ? "Nothing fits." : "There is no config.yaml."));
}

// ---- alerts and the log
let logAt = { run: -1, next: -1 };
async function openLog() {
  const box = $("v-log"), i = lead();
  if (!$("log")) { const a = el("div"), l = el("div"); a.id = "alerts"; l.id = "log"; box.replaceChildren(el("h2", "", "Alerts"), a, el("h2", "", "log.txt"), l); l.tabIndex = 0; }
  const all = details.flatMap((d, k) => d && !hidden.has(k) ? d.alerts.map(a => ({ ...a, k })) : []).sort((a, b) => b.step - a.step);
  $("alerts").replaceChildren(...(all.length ? all.map(a => {
    const e = el("div", "alert " + a.level), s = el("span");
    const link = el("a", "", "step " + a.step); link.href = "#"; link.onclick = ev => { ev.preventDefault(); go("answers", { r: a.k, steps: a.step, id: null }); };
    s.append(runs.length > 1 ? plain(runs[a.k].name) + ": " : "", plain(a.text));
    e.append(el("span", "lv", (a.level === "error" ? "✗ " : "! ") + a.level), link, s);
    return e;
  }) : [el("div", "empty", "Nothing wants your eyes.")]));
  const fresh = logAt.run !== i, r = await get("log?run=" + i + (fresh ? "" : "&from=" + logAt.next)), l = $("log"), end = l.scrollHeight - l.scrollTop - l.clientHeight < 40;
  if (fresh || r.from < logAt.next) l.replaceChildren();
  say(l, r.text);
  logAt = { run: i, next: r.next };
  if (fresh || end) l.scrollTop = l.scrollHeight;
}

// ---- what is live
let asked = [];
async function learn(list) { // what changed of which run
  runs = list;
  await Promise.all(runs.map(async (r, i) => {
    if (asked[i] === r.version) return;
    asked[i] = r.version;
    details[i] = await get("run?run=" + i);
  }));
  drawRuns();
}
let busy = false, late = false;
async function refresh(now) {
  if (busy) { late = true; return; }
  busy = true;
  try {
    if (view() === "curves") { makePlots(); $("whole").hidden = !range(); await load(now); }
    else if (view() === "answers") await openList();
    else if (view() === "time") await openTime();
    else if (view() === "config") openConfig();
    else await openLog();
    calm();
  } catch (e) { trouble(e); }
  busy = false;
  if (late) { late = false; refresh(now); }
}
const pause = ms => new Promise(r => setTimeout(r, ms));
async function listen() { // a stream where the server has one free, else a look each few seconds
  for (let wait = 1000; ; await pause(wait)) {
    try {
      const r = await fetch("api/live", { headers: { "X-Hone-Token": token(), Accept: "text/event-stream" } });
      if (r.status === 503) { await told((await get("runs")).runs); $("live").textContent = "every 5 s"; wait = 5000; continue; }
      if (!r.ok) throw Object.assign(new Error(""), { status: r.status });
      $("live").textContent = "● live"; calm(); wait = 1000;
      const reader = r.body.getReader(), text = new TextDecoder();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) break;
        rest += text.decode(value, { stream: true });
        let last = null;
        for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) { const d = /^data: (.*)$/m.exec(rest.slice(0, end)); if (d) last = d[1]; }
        if (last) await told(JSON.parse(last).runs);
      }
    } catch (e) { trouble(e.status ? e : new Error("")); wait = Math.min(10000, wait * 2); }
    $("live").textContent = "○ not live";
  }
}
let toldAt = 0;
async function told(list) {
  const since = performance.now() - toldAt;
  if (list.some((r, i) => r.version !== asked[i])) { await learn(list); if (since > 1500) { toldAt = performance.now(); await refresh(false); } else { clearTimeout(told.t); told.t = setTimeout(() => refresh(false), 1600); } } else { runs = list; drawRuns(); }
}

// ---- what people do
function wire() {
  $("x-axis").value = xOf(); $("x-axis").onchange = e => { keep({ x: e.target.value === "step" ? null : e.target.value, a: null, b: null }); load(true).catch(trouble); };
  $("smooth").oninput = $("log-y").onchange = () => { for (const p of live_plots()) if (p.data.length) p.draw(null); };
  $("filter").oninput = filterPlots;
  $("whole").onclick = () => zoom(null);
  const ask = () => { keep({ r: $("ask-run").value === "0" && runs.length < 2 ? null : $("ask-run").value, steps: $("ask-steps").value.trim(), min: $("ask-min").value.trim(), max: $("ask-max").value.trim(), finish: $("ask-finish").value, q: $("ask-q").value, sort: $("ask-sort").value, row: null, id: null }); openList().catch(trouble); };
  for (const id of ["ask-run", "ask-steps", "ask-min", "ask-max", "ask-finish", "ask-sort"]) $(id).onchange = ask;
  let typing; $("ask-q").oninput = () => { clearTimeout(typing); typing = setTimeout(ask, 250); };
  $("ask").onsubmit = e => { e.preventDefault(); ask(); };
  $("ask-clear").onclick = () => { keep({ steps: null, min: null, max: null, finish: null, q: null, row: null, id: null }); for (const id of ["ask-steps", "ask-min", "ask-max", "ask-q"]) $(id).value = ""; openList().catch(trouble); };
  let drawn = 0;
  $("list").onscroll = () => { cancelAnimationFrame(drawn); drawn = requestAnimationFrame(() => { drawRows(); rows().catch(trouble); }); };
  $("list").onkeydown = e => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!by) return;
    e.preventDefault();
    if (chosen < 0) for (const [i, r] of listing.rows) if (r.id === current?.id) chosen = i;
    chosen = Math.max(0, Math.min(listing.total - 1, chosen + by));
    const s = scale(), first = firstRow(), fit = Math.floor($("list").clientHeight / ROW);
    if (chosen < first || chosen >= first + fit) $("list").scrollTop = (chosen < first ? chosen : chosen - fit + 1) / Math.max(1, s.most) * s.room;
    rows().then(() => { const r = listing.rows.get(chosen); if (r) { keep({ id: r.id }); return show(r.id); } }).catch(trouble);
  };
  addEventListener("popstate", () => { for (const k of [...state.keys()]) state.delete(k); for (const [k, v] of new URLSearchParams(location.hash.slice(1))) state.set(k, v); open_view(); });
  let sized; addEventListener("resize", () => { clearTimeout(sized); sized = setTimeout(() => { for (const p of live_plots()) p.draw(null); if (view() === "answers") rows().catch(trouble); load().catch(trouble); }, 120); });
  let scrolled; addEventListener("scroll", () => { clearTimeout(scrolled); scrolled = setTimeout(() => load().catch(trouble), 60); }, { passive: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawRuns(); for (const p of live_plots()) p.draw(null); });
  setInterval(() => { if (view() === "time" && !document.hidden) system().catch(() => {}); if (view() === "log" && !document.hidden) openLog().catch(() => {}); }, 5000);
}
async function main() {
  wire();
  drawNav(0, false);
  try { await learn((await get("runs")).runs); open_view(); } catch (e) { trouble(e); if (e.status === 401) return; }
  listen();
}
main();
