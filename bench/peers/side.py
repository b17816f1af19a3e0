"""side.py - what the side-by-side scripts share: both sides as processes that take turns, the instruction set that both are
held to, the surroundings in which torch and llama.cpp are quickest, medians, and the rows of the table.

A turn is one line to a process and one line of JSON back.  A side that is not asked is stopped (SIGSTOP): so OpenMP's threads
may spin while they wait for each other, which is quickest for them, and take no core from the other side.

Words that every script takes: avx2 (both sides held to it; else the best there is), quick (one round, and not of everything, to see that it works)."""
import ctypes, json, os, signal, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TMP = tempfile.gettempdir()
THREADS = 2


def taken(word):
    if word not in sys.argv:
        return False
    sys.argv.remove(word)
    return True


AVX2, QUICK = taken("avx2"), taken("quick")
BUILD = os.path.join(ROOT, "build")
BENCH = os.path.join(BUILD, "avx2" if AVX2 else "bench")
HONE = os.path.join(BENCH if AVX2 else BUILD, "hone")


def rounds(n):
    return 1 if QUICK else n


def busy(seconds=1.0, known=[]):
    """Whether other programs use more than a quarter of the machine: what the cores did for a second, before anything of ours runs."""
    def ticks():
        t = list(map(int, open("/proc/stat").readline().split()[1:9]))
        return sum(t), t[3] + t[4]
    if not known and "BENCH_BUSY" in os.environ:    # several scripts in one run: all by the same clock
        known.append(os.environ["BENCH_BUSY"] == "1")
    if not known:
        (all0, idle0), _ = ticks(), time.sleep(seconds)
        all1, idle1 = ticks()
        known.append(1 - (idle1 - idle0) / max(1, all1 - all0) > 0.25)
    return known[0]


def seconds(answer):
    """What a turn took; beside other work processor seconds stand in for it, as if every thread had a core."""
    return answer["cpu"] / THREADS if busy() else answer["seconds"]


# ---- the peer's surroundings
LIBS = "/usr/lib/x86_64-linux-gnu/"
MALLOCS = {     # memory that is kept, in huge pages where the library can
    "glibc": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=17179869184:glibc.malloc.mmap_max=0"},
    "jemalloc": {"LD_PRELOAD": LIBS + "libjemalloc.so.2", "MALLOC_CONF": "thp:always,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"},
    "tcmalloc": {"LD_PRELOAD": LIBS + "libtcmalloc_minimal.so.4", "TCMALLOC_RELEASE_RATE": "0"},
}


def surroundings(malloc=None, **more):
    """Environment of a peer: two threads that spin (sleep, beside other work: spinning, a step of seconds takes minutes), the
    malloc of that name, and the lower instruction set where it is asked for."""
    env = dict(os.environ, OMP_WAIT_POLICY="passive" if busy() else "active", THP_MEM_ALLOC_ENABLE="1", TOKENIZERS_PARALLELISM="false",
               HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_OFFLINE="1", PYTHONWARNINGS="ignore", PYTHONPATH="", CUDA_VISIBLE_DEVICES="")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = str(THREADS)
    if AVX2:
        env.update(ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2", OPENBLAS_CORETYPE="Haswell")
    env.update(MALLOCS.get(malloc, {}), **more)
    return env


# ---- turns
class Side:
    """A program that answers lines; it runs only while it is asked."""

    def __init__(self, command, env=None):
        self.command = [str(c) for c in command]
        dies = lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL)     # with this script, or it would stand stopped for ever
        self.p = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, preexec_fn=dies)

    def answer(self):
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError("%s ended with code %s" % (" ".join(self.command[:3]), self.p.wait()))
        self.p.send_signal(signal.SIGSTOP)
        got = json.loads(line)
        if "error" in got:
            raise RuntimeError(got["error"])
        return got

    def ask(self, *words):
        self.p.send_signal(signal.SIGCONT)
        self.p.stdin.write(" ".join(map(str, words)) + "\n")
        self.p.stdin.flush()
        return self.answer()

    def close(self):
        self.p.send_signal(signal.SIGCONT)
        try:
            self.p.stdin.close()
        except BrokenPipeError:     # it has died
            pass
        self.p.wait()


def Hone(program, *args):
    return Side([os.path.join(BENCH, program), *args])


def Peer(script, *args, env=None):
    """The other half of a script, `SCRIPT peer ARGS`, which calls serve(); it says "ready" first."""
    s = Side([sys.executable, script, "peer", *args], env or surroundings())
    s.told = s.answer()
    return s


def channel():
    """The peer's way to answer: what libraries print goes elsewhere."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lambda **told: print(json.dumps(told), file=out, flush=True)


def serve(answer, **told):
    """The peer's loop: answer(words) -> what becomes JSON; seconds and processor seconds are added."""
    tell = channel()
    tell(**told)
    for line in sys.stdin:
        t, c = time.perf_counter(), time.process_time()
        try:
            got = answer(line.split()) or {}
        except Exception as e:
            got = {"error": "%s: %s" % (type(e).__name__, str(e).split("\n")[0][:200])}
        tell(**{"seconds": time.perf_counter() - t, "cpu": time.process_time() - c, **got})


def best(name, labels, make, trial, go_on=True):
    """The quickest way for a peer: make(label) starts it, trial(side) is its time.  Returns (label, side, or None where it is not to go on).
    Several scripts in one run: what was chosen is kept, for each instruction set by itself (a way may not work with both)."""
    folder = os.environ.get("BENCH_LOGS")
    name += ", avx2" if AVX2 else ""
    path = folder and os.path.join(folder, "choices.json")
    kept = json.load(open(path)) if path and os.path.exists(path) else {}
    if kept.get(name) in labels:
        return kept[name], make(kept[name]) if go_on else None
    found = {}
    for label in labels:
        side = None
        try:
            side = make(label)
            took = trial(side)
        except RuntimeError as e:
            print("  %s: %s: %s" % (name, label, e), flush=True)
            side and side.close()
            continue
        print("  %s: %s: %.4g s" % (name, label, took), flush=True)
        if not found or took < found["took"]:
            found and found["side"].close()
            found = {"took": took, "label": label, "side": side}
        else:
            side.close()
    if not found:
        raise RuntimeError(name + ": no way works")
    if path:
        json.dump({**kept, name: found["label"]}, open(path, "w"))
    if not go_on:
        found["side"].close()
    return found["label"], found["side"] if go_on else None


def model(config, folder, *options):
    """A random checkpoint of that configuration, made once."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        subprocess.run([HONE, "random", config, folder, "--seed", "1", *options], check=True)
    return folder


def tokens(n, vocab):
    """The tokens that bench_train_step.c and bench_decode.c make."""
    x, out = 1, []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append((x >> 8) % vocab)
    return out


# ---- what is told
def heading(**versions):
    """Which instruction set runs, and whether others are on the machine: a figure taken beside other work says so."""
    h = Hone("bench_turns", 1)
    isa = h.ask("dw", 64, 64, 64)["isa"]
    h.close()
    print("%s: hone with %s, %d threads, other programs: %s; %s" % (os.path.basename(sys.argv[0]), isa, THREADS,
          "RUNNING, processor time is compared" if busy() else "none", ", ".join("%s %s" % v for v in versions.items())), flush=True)


def spread(xs):
    return "median %.4g, from %.4g to %.4g, of %d" % (statistics.median(xs), min(xs), max(xs), len(xs))


def row(what, ours, theirs, unit, bar, peer="", rate=False, or_share=None):
    """A row of the table: ours and theirs turn by turn, in seconds, or rates (then more is better).  or_share: a second way to
    meet the bar, (share, its bar)."""
    o, t = statistics.median(ours), statistics.median(theirs)
    turns = [a / b if rate else b / a for a, b in zip(ours, theirs)]
    ratio = o / t if rate else t / o
    met = ratio >= bar or (or_share and or_share[0] >= or_share[1])
    more = "" if not or_share else " or %.0f %% of peak (%.0f %%)" % (100 * or_share[1], 100 * or_share[0])
    print("| %s | %.4g %s | %.4g %s%s | %.2f | %.2f to %.2f of %d | %.2f%s | %s |" % (what, o, unit, t, unit, peer and ", " + peer, ratio,
          min(turns), max(turns), len(turns), bar, more, "met" if met else "MISSED"), flush=True)
    return ratio


def cannot(what, why):
    print("| %s | | | | | | not measured: %s |" % (what, str(why).split("\n")[0][:120]), flush=True)


def reads(who, gb_s, seen=[]):
    """A rate at which a program was seen to read memory.  Returns the highest so far, of all scripts of one run."""
    print("  %s reads %.1f GB/s" % (who, gb_s), flush=True)
    seen.append(gb_s)
    if "BENCH_LOGS" in os.environ:
        with open(os.path.join(os.environ["BENCH_LOGS"], "reads"), "a+") as f:
            f.write("%f\n" % gb_s)
            f.seek(0)
            seen.extend(map(float, f))
    return max(seen)
