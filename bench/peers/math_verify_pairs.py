"""math_verify_pairs.py - compares math_exact with math-verify (PyPI) on MATH-style answers of our own making.

    python3 -m venv V && V/bin/pip install math-verify
    V/bin/python bench/peers/math_verify_pairs.py build/hone [SEED]

Makes pairs (truth, answer), about half of them equal, in the ways that MATH's answers are written; asks both judges;
prints how often they agree, and each difference with its reason from math_verify_differences.tsv beside this file (a
pattern of pairs -> why).  A difference without a reason makes the exit code 1, so does agreement under 98 %."""
import json, logging, os, random, re, subprocess, sys, tempfile
from fractions import Fraction

HONE = sys.argv[1]
random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 7)
R, C = random.randint, random.choice
pairs = []


def both(kind, truth, right, wrong):
    pairs.append((kind, truth, right))
    pairs.append((kind, truth, wrong))


def frac(f, style=None):
    """A fraction as somebody may write it."""
    if f.denominator == 1:
        return str(f.numerator)
    style = style or C(["frac", "dfrac", "slash", "neg"])
    n, d, sign = abs(f.numerator), f.denominator, "-" if f < 0 else ""
    if style == "slash":
        return f"{f.numerator}/{d}"
    if style == "neg":
        return "\\frac{%d}{%d}" % (f.numerator, d)
    return sign + "\\%s{%d}{%d}" % ("frac" if style == "frac" else "dfrac", n, d)


def rational(most=20):
    return Fraction(C([-1, 1]) * R(1, most), R(2, 12))


for _ in range(60):
    n = R(-999, 99999)
    both("integer", str(n), C([str(n), f"{n:,}", f"{n}.0", f"x = {n}", f"{n}.", f"\\text{{{n}}}"]), str(n + C([-10, -1, 1, 7])))
for _ in range(70):
    f = rational()
    both("fraction", frac(f), frac(f), frac(f + Fraction(1, C([2, 3, 5]))))
for _ in range(40):
    f = Fraction(R(1, 400), C([2, 4, 5, 8, 10, 20, 25]))
    both("decimal", frac(f), str(float(f)), str(float(f) + 0.5))
for _ in range(30):
    w, d = R(1, 9), R(2, 9)
    n = R(1, d - 1)
    both("mixed", "%d\\frac{%d}{%d}" % (w, n, d), frac(w + Fraction(n, d), "frac"), frac(w * Fraction(n, d), "frac"))
for _ in range(30):
    n = R(1, 99)
    both("percent", f"{n}\\%", C([f"{n}\\%", f"{n}", f"{n}%", f"{n / 100}"]), f"{n + 1}\\%")
for _ in range(50):
    a, b, c = R(2, 9), C([2, 3, 5, 6, 7, 10, 11]), R(2, 9)
    both("root", "%d\\sqrt{%d}" % (a, b), "\\sqrt{%d}" % (a * a * b), "%d\\sqrt{%d}" % (b, a + 20))
    both("root", "\\frac{%d\\sqrt{%d}}{%d}" % (a, b, b), "\\frac{%d}{\\sqrt{%d}}" % (a, b), "\\frac{%d}{\\sqrt{%d}}" % (a, b + 1))
    both("root", "%d+\\sqrt{%d}" % (c, b), "\\sqrt{%d}+%d" % (b, c), "%d-\\sqrt{%d}" % (c, b))
    both("root", "\\frac{%d+\\sqrt{%d}}{2}" % (c, b), "\\frac{1}{2}(%d+\\sqrt{%d})" % (c, b), "%d+\\frac{\\sqrt{%d}}{2}" % (c, b))
for _ in range(40):
    f = rational(12)
    k = f"{f.numerator}\\pi/{f.denominator}" if f.denominator > 1 else f"{f.numerator}\\pi"
    both("pi", frac(f, "frac") + "\\pi", C(["\\frac{%d\\pi}{%d}" % (f.numerator, f.denominator), k]), frac(f + 1, "frac") + "\\pi")
for _ in range(60):
    a, b, c = R(-9, 9), R(-9, 9), R(1, 5)
    x = C("xynt")
    poly = f"{c}{x}^2{c * (a + b):+d}{x}{c * a * b:+d}".replace("+0" + x, "").replace(f"1{x}^2", f"{x}^2" if c == 1 else f"1{x}^2")
    both("polynomial", poly, f"{c}({x}{a:+d})({x}{b:+d})", f"{c}({x}{a + 1:+d})({x}{b:+d})")
for _ in range(30):
    a, b = R(1, 9), R(1, 9)
    both("quotient", "\\frac{1}{x+%d}" % a, "\\frac{x+%d}{(x+%d)(x+%d)}" % (b, a, b), "\\frac{1}{x-%d}" % a)
    both("quotient", "\\frac{%da}{%db}" % (2 * a, 2 * b), "\\frac{%da}{%db}" % (a, b), "\\frac{%db}{%da}" % (a, b + 1))
for _ in range(50):
    p, q = rational(), rational()
    both("pair", f"({frac(p)},{frac(q)})", f"\\left({frac(p)}, {frac(q)}\\right)", f"({frac(q)},{frac(p + 1)})")
for _ in range(25):
    p, q, r = R(-9, 9), R(-9, 9), R(-9, 9)
    both("triple", f"({p},{q},{r})", f"({p}, {q}, {r})", f"({p},{q},{r + 1})")
for _ in range(40):
    s = random.sample(range(-20, 60), R(2, 4))
    t = s[:]
    random.shuffle(t)
    both("list", ",".join(map(str, s)), C([", ", ","]).join(map(str, t)), ",".join(map(str, s[:-1] + [s[-1] + 100])))
    both("set", "\\{" + ",".join(map(str, s)) + "\\}", "\\{" + ", ".join(map(str, t)) + "\\}", "\\{" + ",".join(map(str, s[1:])) + "\\}")
for _ in range(40):
    a = R(-9, 9)
    b = a + R(1, 9)
    o, c = C("(["), C(")]")
    both("interval", f"{o}{a},{b}{c}", f"\\left{o}{a}, {b}.0\\right{c}", f"{o}{a},{b + 1}{c}")
    both("union", f"(-\\infty,{a})\\cup({b},\\infty)", f"(-\\infty, {a}) \\cup ({b}, \\infty)", f"(-\\infty,{a})\\cup({b + 1},\\infty)")
for _ in range(30):
    a = R(-9, 20)
    op, turned = C([("<", ">"), (">", "<"), ("\\le", "\\ge"), ("\\geq", "\\leq")])
    both("inequality", f"x{op}{a}", f"{a}{turned} x", f"x{turned}{a}")
for _ in range(40):
    a, b = R(2, 9), R(1, 9)
    both("equation", f"y={a}x+{b}", C([f"y = {b}+{a}x", f"{a}x-y+{b}=0", f"{a}x+{b}"]), f"y={a}x-{b}")
    both("assignment", f"x={a}", C([f"{a}", f"x = {a}"]), f"x={a + 1}")
for _ in range(30):
    a, b = R(-9, 9) or 3, R(1, 9)
    both("complex", f"{a}+{b}i", f"{b}i{a:+d}", f"{a}-{b}i")
for _ in range(30):
    a, b = R(2, 9), R(2, 6)
    both("power", f"{a}^{{{b}}}", str(a**b), str(a * b if a * b != a**b else a * b + 1))
    both("power", f"{a}x^{{{b}}}", f"x^{b}\\cdot{a}", f"{a}x^{{{b + 1}}}")
for _ in range(20):
    a, b = C([2, 3, 5]), R(2, 5)
    both("log", f"\\log_{a} {a**b}", str(b), str(b + 1))
    both("log", f"{b}\\ln {a}", "\\ln %d" % a**b, "\\ln %d" % (a**b + 1))
for _ in range(40):
    n, unit = R(1, 500), C(["cm", "meters", "inches", "miles", "hours", "dollars", "degrees", "square units", "students"])
    both("unit", "%d\\text{ %s}" % (n, unit), C([str(n), "%d\\text{ %s}" % (n, unit), "%d \\mbox{ %s}" % (n, unit)]), str(n + 1))
for _ in range(20):
    n = R(1, 179)
    both("degrees", f"{n}^\\circ", C([str(n), f"{n}^{{\\circ}}"]), f"{n + 1}^\\circ")
    both("dollars", f"\\${n}.50", C([f"{n}.5", f"\\${n}.50"]), f"\\${n}.05")
for w, v in [("even", "odd"), ("east", "west"), ("Evelyn", "Briana"), ("ellipse", "hyperbola"), ("neither", "both"), ("Tuesday", "Friday"),
             ("yes", "no"), ("True", "False"), ("parabola", "circle"), ("red", "blue")]:
    both("word", "\\text{%s}" % w, "\\text{%s}" % C([w, w.lower()]), "\\text{%s}" % v)
for k in "ABCDE":
    other = "BCDEA"["ABCDE".index(k)]
    both("choice", "\\text{(%s)}" % k, C([k, "(%s)" % k, "\\text{%s}" % k]), other)
    both("choice", k, "\\text{(%s)}" % k, "\\text{(%s)}" % other)
for _ in range(20):
    m = [R(-9, 9) for _ in range(4)]
    mat = lambda v, e: "\\begin{%s} %d & %d \\\\ %d & %d \\end{%s}" % (e, *v, e)
    both("matrix", mat(m, "pmatrix"), mat(m, C(["pmatrix", "bmatrix"])), mat(m[:3] + [m[3] + 1], "pmatrix"))
    both("vector", "\\begin{pmatrix} %d \\\\ %d \\end{pmatrix}" % (m[0], m[1]), "\\begin{pmatrix}%d\\\\%d\\end{pmatrix}" % (m[0], m[1]),
         "\\begin{pmatrix} %d \\\\ %d \\end{pmatrix}" % (m[1], m[0] + 20))
for _ in range(20):
    n, e = R(11, 99), R(2, 6)
    both("scientific", f"{n / 10}\\times 10^{e}", str(n * 10 ** (e - 1)), f"{n / 10}\\times 10^{e + 1}")
for _ in range(15):
    a, b = R(1, 9), C([2, 3, 5, 7])
    both("plus-minus", f"{a}\\pm\\sqrt{{{b}}}", f"{a}+\\sqrt{b}, {a}-\\sqrt{b}", f"{a}+\\sqrt{b}")
for _ in range(15):
    a, b = R(1, 9), R(1, 9)
    both("ratio", f"{a}:{b}", f"{a} : {b}", f"{b}:{a + 10}")
    both("base", f"{a}{b}_8", f"{a}{b}_{{8}}", f"{b}{a + 10}_8")


def ask_hone():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/in", "w") as f:
            for _, truth, answer in pairs:
                f.write(json.dumps({"solution_str": "\\boxed{%s}" % answer, "ground_truth": truth}) + "\n")
        subprocess.run([HONE, "grade", "--scorer", "math_exact", "--in", d + "/in", "--out", d + "/out"], check=True)
        return [json.loads(l)["score"] == 1 for l in open(d + "/out")]


def ask_math_verify():
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    # without its limits of time: they go by the clock, and on a busy machine a right answer then counts as wrong
    read = lambda s: parse("\\boxed{%s}" % s, parsing_timeout=None)
    return [bool(verify(read(t), read(a), timeout_seconds=None)) for _, t, a in pairs]


reasons = []
with open(os.path.join(os.path.dirname(__file__), "math_verify_differences.tsv")) as f:
    for line in f:
        if line.strip() and not line.startswith("#"):
            kind, truth, answer, why = line.rstrip("\n").split("\t")
            reasons.append((kind, re.compile(truth), re.compile(answer), why))
ours, theirs = ask_hone(), ask_math_verify()
unexplained = 0
for (kind, truth, answer), x, y in zip(pairs, ours, theirs):
    if x == y:
        continue
    why = [w for k, t, a, w in reasons if k == kind and t.search(truth) and a.search(answer)]
    unexplained += not why
    print(f"{kind}: truth {truth}   answer {answer}   hone {x}, math-verify {y}: {why[0] if why else 'UNEXPLAINED'}")
agree = sum(x == y for x, y in zip(ours, theirs))
print(f"{len(pairs)} pairs, {sum(ours)} equal by hone, {sum(theirs)} by math-verify; agree on {agree} = {100 * agree / len(pairs):.2f} %, "
      f"{unexplained} differences unexplained")
sys.exit(unexplained > 0 or agree < 0.98 * len(pairs))
