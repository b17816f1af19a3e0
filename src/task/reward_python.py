# reward_python.py - a scorer written in Python (`reward.python`): loads FILE and answers every line of JSON with one, or, where the function
# judges many answers in one call, a line with a list of them with a line for each.
# hone carries this text in itself and runs it in child processes as `python3 -c TEXT FILE FUNCTION ARGUMENTS`.  FILE's own text comes first, behind a line with its
# length: the file may be another by the time that a process has to be replaced.
#
# The first line it writes is its greeting: {"ready": true, "many": whether lists are welcome}, or why it cannot judge.  What the scorer prints goes to standard
# error: standard output belongs to the answers.
import asyncio, importlib.machinery, importlib.util, inspect, json, linecache, math, os, sys, traceback

answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdin.reconfigure(encoding="utf-8")  # whatever the locale says
sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
sys.stdout = sys.stderr


MOST = 60000  # characters of a line; hone takes no more than 64 KiB for an answer


def say(value):
    value = plain(value)
    line = json.dumps(value)
    if len(line) > MOST:
        line = json.dumps({k: short(v) for k, v in value.items()})
    if len(line) > MOST:
        line = json.dumps({k: short(value[k]) for k in ("score", "acc", "id") if k in value})
    answers.write(line + "\n")
    answers.flush()


def short(x):
    """What stands beside a score and is long, as the beginning of its text."""
    line = x if isinstance(x, str) else json.dumps(x)
    return x if len(json.dumps(x)) <= 1000 else line[:1000] + "..."


def plain(x, above=()):
    """As JSON can hold it and hone reads it: what is not finite as null, keys as text, numbers of numpy and torch as numbers, anything else as text, also what is
    inside itself or more than a hundred deep.  A verdict is not lost for what stands beside its score."""
    try:
        if x is None or isinstance(x, bool):
            return x
        if isinstance(x, str):
            return utf8(x)
        if isinstance(x, float):
            return x if math.isfinite(x) else None
        if isinstance(x, int) and x.bit_length() < 10000:
            return x
        if isinstance(x, (dict, list, tuple)):
            if id(x) in above or len(above) == 100:
                return text(x)
            above = (*above, id(x))
            if isinstance(x, dict):
                return {text(k): plain(v, above) for k, v in x.items()}
            return [plain(v, above) for v in x]
        number = x.item()
        return plain(number) if isinstance(number, (bool, int, float)) else text(x)
    except Exception:
        return text(x)


def text(x):
    try:
        return utf8(str(x))
    except Exception:
        return "<%s>" % type(x).__name__


def utf8(x):
    """Half of a surrogate pair has no UTF-8."""
    return str.encode(x, "utf-8", "replace").decode("utf-8")


def reason(error, file):
    """What went wrong, and where in the scorer's own file."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == file]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    place = "%s:%d: " % (os.path.basename(file), lines[-1]) if lines else ""
    return (place + "%s: %s" % (type(error).__name__, error)).replace("\n", " ")[:400]


class Given(importlib.machinery.SourceFileLoader):
    """The file, with the text that it had when the run began."""

    def __init__(self, file, code):
        super().__init__("scorer", file)
        self.code = code
        lines = code.decode("utf-8", "replace").splitlines(True)
        linecache.cache[file] = (len(code), None, lines, file)  # for tracebacks and inspect.getsource

    def get_data(self, path):
        return self.code if path == self.path else super().get_data(path)

    def get_code(self, fullname):  # never from __pycache__, which is what the file is now
        return compile(self.code, self.path, "exec", dont_inherit=True)


def load(file, name, code):
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_loader("scorer", Given(file, code), origin=file)
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    sys.modules["scorer"] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        own = [k for k, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == "scorer"]
        raise LookupError("there is no function %s; there are %s (reward.python_function, --function)" % (name, ", ".join(own) or "none"))
    return getattr(module, name)


def check(function, more):
    """What the function wants must be what it will be given."""
    given = ["data_source", "solution_str", "ground_truth", "extra_info"]
    if takes_many(function):
        given = [k + "s" for k in given]
    for p in inspect.signature(function).parameters.values():
        usual = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name in [*given, *more]
        if not usual and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            what = getattr(function, "__name__", "the scorer"), p.name, ", ".join([*given, *more])
            raise TypeError("%s wants '%s'; it is given %s by name" % what)


def takes_many(function):
    """verl's batch form: compute_score(data_sources, solution_strs, ground_truths, extra_infos), lists all."""
    return "solution_strs" in inspect.signature(function).parameters


def call(function, given, more):
    names = inspect.signature(function).parameters
    if not any(p.kind == p.VAR_KEYWORD for p in names.values()):
        given = {k: v for k, v in given.items() if k in names}
    result = function(**given, **more)
    return asyncio.run(result) if inspect.isawaitable(result) else result


def verdict(result, file):
    """A number, a list that begins with one, or a dictionary with a score."""
    try:
        if isinstance(result, (list, tuple)):
            result = result[0]
        answer = {str(k): v for k, v in result.items()} if isinstance(result, dict) else {"score": result}
        answer["score"] = float(answer["score"])
        if not math.isfinite(answer["score"]):
            raise ValueError("the score is %r" % answer["score"])
        return answer
    except Exception as error:
        return {"failed": reason(error, file)}


def judge(function, samples, more, file):
    """A verdict for each.  What one answer breaks in a call for many is asked again, each answer alone."""
    given = {k: [s[k] for s in samples] for k in ("data_source", "solution_str", "ground_truth")}
    given["extra_info"] = [s.get("extra_info") or {} for s in samples]
    try:
        if not takes_many(function):
            return [verdict(call(function, {k: v[0] for k, v in given.items()}, more), file)]
        results = list(call(function, {k + "s": v for k, v in given.items()}, more))
        if len(results) != len(samples):
            raise ValueError("%d scores for %d answers" % (len(results), len(samples)))
        return [verdict(r, file) for r in results]
    except Exception as error:
        if len(samples) > 1:
            return [judge(function, [s], more, file)[0] for s in samples]
        return [{"failed": reason(error, file)}]


def main():
    file, name, more = os.path.abspath(sys.argv[1]), *(os.fsencode(word).decode("utf-8") for word in sys.argv[2:4])
    more, code = json.loads(more), sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
    try:
        function = load(file, name, code)
        check(function, more)
        say({"ready": True, "many": takes_many(function)})
    except BaseException as error:
        return say({"failed": reason(error, file)})
    for line in sys.stdin:
        samples = json.loads(line)
        if not isinstance(samples, list):
            samples = [samples]
        for sample, answer in zip(samples, judge(function, samples, more, file)):
            say({**answer, "id": sample["id"]})


main()
