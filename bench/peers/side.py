"""side.py - what the side-by-side scripts share: hone's benchmark as a process that takes turns, medians, a ratio with its bar.

A turn is one line to the process and one line of JSON back; while it waits, it uses no core."""
import json, os, statistics, subprocess, sys, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
THREADS = 2


def busy(seconds=1.0, known=[]):
    """Whether other programs use more than a quarter of the machine: what the cores did for a second, before anything of ours runs."""
    def ticks():
        t = list(map(int, open("/proc/stat").readline().split()[1:9]))
        return sum(t), t[3] + t[4]
    if not known:
        (all0, idle0), _ = ticks(), time.sleep(seconds)
        all1, idle1 = ticks()
        known.append(1 - (idle1 - idle0) / max(1, all1 - all0) > 0.25)
    return known[0]


def two_threads():
    """Two threads for every library that asks the environment; before numpy or torch are imported.  Beside other work OpenMP's
    threads must not spin while they wait for each other: a step of seconds would take minutes."""
    if busy():
        os.environ["OMP_WAIT_POLICY"] = "passive"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(THREADS)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def lower(argv):
    """The word avx2 among the arguments holds both sides to that instruction set: it is taken out, the peers' libraries are told
    by the environment (so call this before they are imported), and what hone's benchmarks take is given back (0: the best)."""
    if "avx2" not in argv:
        return 0
    argv.remove("avx2")
    os.environ.update(ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2", DNNL_MAX_CPU_ISA="AVX2", OPENBLAS_CORETYPE="Haswell")
    return 2


class Hone:
    def __init__(self, program, *args):
        self.p = subprocess.Popen([os.path.join(BUILD, "bench", program), *map(str, args)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.p.stdin.write(" ".join(map(str, words)) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit("hone's benchmark ended with code %s" % self.p.wait())
        return json.loads(line)

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def model(config, folder, seed=1):
    """A random checkpoint of that configuration, made once."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        subprocess.run([os.path.join(BUILD, "hone"), "random", config, folder, "--seed", str(seed)], check=True)
    return folder


def tokens(n, vocab):
    """The tokens that bench_train_step.c and bench_decode.c make."""
    x, out = 1, []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append((x >> 8) % vocab)
    return out


def spread(xs):
    return "median %.4g, from %.4g to %.4g, of %d" % (statistics.median(xs), min(xs), max(xs), len(xs))


def verdict(what, ratio, bar):
    print("%-60s %6.2f x   bar %.2f x   %s" % (what, ratio, bar, "met" if ratio >= bar else "MISSED"), flush=True)


def load_note():
    """The load at the start: a figure taken beside other work says so."""
    print("other programs: %s" % ("RUNNING, look at processor time" if busy() else "none"), flush=True)
