"""diff_templates.py - random templates from a small grammar, rendered by Jinja2 and by `hone template`; prints what differs.
usage: python tests/oracle/diff_templates.py HONE [SEED [COUNT]]
An error on both sides counts as equal. Overflow of 64 bits and printed addresses are known differences and left out."""
import json
import os
import random
import subprocess
import sys
import tempfile

from jinja_env import render

ARGS = {"n": 7, "m": -3, "x": 2.5, "t": True, "s": "Hello, World", "u": " é数😀\tß\n", "e": "", "l": [3, 1, 2], "w": ["b", "A", "c"],
        "d": {"a": 1, "b": "x", "items": 5}, "p": [{"k": 1, "v": "q"}, {"k": 2, "v": "Q"}, {"k": 1}], "z": None, "now": "2026-11-15T09:08:07"}
R = random.Random()


def pick(*options):
    return R.choice(options)


def literal():
    return pick("1", "0", "-2", "3.0", "1e20", "0.1", "'a'", "''", "'b c'", "'%s'", "'{}-{}'", "true", "false", "none", "[]", "[1, 'x']", "(1, 2)", "{}",
                "{'k': 1, 'v': [2]}", "'é'", "'A,b'", "range(3)", "(4,)", "missing")


def expr(k):
    if k <= 0 or R.random() < 0.15:
        return pick(literal(), pick("n", "m", "x", "t", "s", "u", "e", "l", "w", "d", "p", "z", "missing", "loop.index0" if R.random() < .1 else "n"))
    e = lambda: expr(k - 1)
    return pick(
        lambda: "%s %s %s" % (e(), pick("+", "-", "*", "/", "//", "%", "~", "**") if R.random() < .9 else "**", pick(e(), "2")),
        lambda: "%s %s %s" % (e(), pick("==", "!=", "<", ">", "<=", ">=", "in", "not in"), e()),
        lambda: "%s %s %s" % (e(), pick("and", "or"), e()),
        lambda: "not %s" % e(), lambda: "(%s)" % e(), lambda: "-%s" % e(),
        lambda: "(%s if %s else %s)" % (e(), e(), e()), lambda: "(%s if %s)" % (e(), e()),
        lambda: "%s[%s]" % (e(), e()), lambda: "(%s).%s" % (e(), pick("a", "k", "items", "v", "0", "1", "_x")),
        lambda: "(%s)[%s:%s]" % (e(), pick("", "1", "-2", "n"), pick("", "2", "-1", "m")),
        lambda: "(%s)[%s:%s:%s]" % (e(), pick("", "1", "-1", "9"), pick("", "-3", "0", "2"), pick("", "-1", "2", "-2")),
        lambda: "(%s)%s" % (e(), filter_(k)), lambda: "(%s)%s" % (e(), filter_(k)), lambda: "(%s)%s" % (e(), filter_(k)),
        lambda: "(%s) is %s%s" % (e(), pick("", "not "), test(k)), lambda: "(%s).%s" % (e(), method(k)), lambda: "(%s).%s" % (pick("s", "u", "e", "'a-b-c'"), method(k)),
        lambda: "[%s, %s]" % (e(), e()), lambda: "{%s: %s}" % (pick("'a'", "1", e()), e()), lambda: "(%s, %s)" % (e(), e()),
        lambda: "dict(a=%s)" % e(), lambda: "range(%s)" % pick("3", "n", "1, n", "9, 1, -3"),
    )()


def filter_(k):
    e = lambda: expr(min(1, k - 1))
    return " | " + pick(
        "upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last", "int", "float", "abs", "round", "join", "join(',')", "sort", "reverse | list",
        "unique | list", "sum", "min", "max", "tojson", "tojson(indent=2)", "dictsort", "items | list", "wordcount", "escape", "safe", "default('D')", "d('D', true)", "count",
        "replace('a', 'bb')", "replace(%s, %s)" % (e(), e()), "map('upper') | list", "map('string') | join", "map(attribute='k') | list", "map(attribute='v', default='-') | list",
        "select | list", "reject | list", "select('odd') | list", "selectattr('k') | list", "selectattr('k', 'eq', 1) | list", "rejectattr('v', 'defined') | list", "groupby('k')",
        "batch(2) | list", "batch(2, %s) | list" % e(), "slice(2) | list", "indent", "indent(2, true)", "round(1)", "round(1, 'floor')", "int(%s)" % e(), "truncate(5)", "center(9)",
        "format(%s)" % e(), "format(%s, %s)" % (e(), e()), "attr('upper') is defined", "sort(reverse=true)", "sort(attribute='k')", "tojson(sort_keys=true, separators=(',', ':'))",
        "join(%s)" % e(), "default(%s)" % e(), "urlencode", "tojson(ensure_ascii=true)", "trim(%s)" % e())


def test(k):
    return pick("defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true", "false", "odd", "even", "lower", "upper",
                "divisibleby 2", "eq %s" % literal(), "in %s" % pick("l", "w", "d", "s", "[1, none]"), "sameas none", "gt(2)", "escaped")


def method(k):
    e = lambda: expr(0)
    return pick("strip()", "lstrip()", "rstrip()", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "split()", "split(',')", "split('l', 1)", "rsplit('l', 1)", "split(none, 1)", "rsplit(none, 1)",
                "splitlines()", "startswith('H')", "endswith(('d', ' '))", "find('l')", "rfind('l')", "index('o')", "count('l')", "replace('l', 'LL')", "replace('', '-')", "join(w)", "join(%s)" % e(),
                "zfill(15)", "isdigit()", "isalpha()", "isspace()", "isalnum()", "partition('l')", "rpartition('-')", "get('a')", "get('zz', 1)", "keys() | list", "values() | list", "items() | list",
                "append(1)", "update({})", "index(1)", "count(1)", "format(1, 2)", "format(%s)" % e(), "ljust(14, '.')", "center(15)", "removeprefix('He')", "find('l', 3, -1)", "strip(%s)" % e(), "copy()")


def statement(k):
    if k <= 0:
        return pick("text ", "\n", "  ", "{{ %s }}" % expr(2), "{{- %s }}" % expr(1), "{{ %s -}}" % expr(1), "{# c #}", "{#- c #}\n")
    s = lambda: "".join(statement(k - 1) for _ in range(R.randint(1, 3)))
    b = lambda: pick("{%", "{%", "{%-", "{%+")
    c = lambda: pick("%}", "%}", "-%}", "%}\n", "+%}")
    tag = lambda text: "%s %s %s" % (b(), text, c())
    return pick(
        lambda: statement(0), lambda: statement(0), lambda: tag("if %s" % expr(2)) + s() + pick("", tag("else") + s(), tag("elif %s" % expr(1)) + s()) + tag("endif"),
        lambda: tag("for i in %s%s" % (expr(1), pick("", "", " if i"))) + s() + "{{ i }}{{ loop.index }}{{ loop.last }}" + pick("", tag("else") + s()) + tag("endfor"),
        lambda: tag("for a, b in %s" % pick("d.items()", "p", "[(1, 2)]", "d | items")) + "{{ a }}{{ b }}" + pick("", tag("if a") + pick(tag("break"), tag("continue")) + tag("endif")) + s() + tag("endfor"),
        lambda: tag("set %s = %s" % (pick("n", "s", "q"), expr(2))), lambda: tag("set q") + s() + tag("endset") + "{{ q }}",
        lambda: tag("macro f(a, b=%s)" % expr(1)) + "{{ a }}{{ b }}" + s() + tag("endmacro") + "{{ f(%s) }}{{ f(1, b=2) }}" % expr(1),
        lambda: tag("set ns = namespace(v=%s)" % expr(1)) + tag("for i in l") + tag("set ns.v = %s" % pick("i", "ns.v", expr(1))) + tag("endfor") + "{{ ns.v }}",
        lambda: tag("filter %s" % pick("upper", "trim", "indent")) + s() + tag("endfilter"), lambda: tag("with q = %s" % expr(1)) + s() + "{{ q }}" + tag("endwith"),
        lambda: tag("generation") + s() + tag("endgeneration"), lambda: tag("raw") + " {{ x }} " + tag("endraw"),
    )()


KNOWN = ("64 bits", "memory address", "61 bits", "LimitError", "complex number", "width too big", "is not supported",
         "not subscriptable", "type: 'slice'")      # of a literal that Jinja2 folds before it runs


def main():
    hone, seed, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1, int(sys.argv[3]) if len(sys.argv) > 3 else 500
    R.seed(seed)
    bad = known = errors = 0
    with tempfile.TemporaryDirectory() as d:
        t, i = os.path.join(d, "t.jinja"), os.path.join(d, "in")
        open(i, "w").write(json.dumps(ARGS) + "\n")
        for _ in range(count):
            text = pick(lambda: "{{ %s }}" % expr(R.randint(1, 3)), lambda: "".join(statement(R.randint(0, 2)) for _ in range(R.randint(1, 4))))()
            want = render(text, ARGS)
            open(t, "w").write(text)
            run = subprocess.run([hone, "template", t, "--in", i, "--threads", "1"], capture_output=True, text=True)
            got = json.loads(run.stdout) if run.stdout else {"error": run.stderr.strip()}
            errors += "error" in want
            if ("error" in want) == ("error" in got) and want.get("text") == got.get("text") and run.returncode in (0, 1):
                continue
            if any(k in got.get("error", "") for k in KNOWN) or " at 0x" in want.get("text", ""):
                known += 1
                continue
            bad += 1
            print("TEMPLATE %r\n want %r\n got  %r" % (text, want, got))
    print("seed %d: %d templates, %d of them errors, %d known differences left out, %d differ" % (seed, count, errors, known, bad))
    return bad > 0


sys.exit(main())
