# reward_python.py - a scorer written in Python (`reward.python`): loads FILE and answers every line of JSON with one.
# hone carries this text in itself and runs it in child processes as `python3 -c TEXT FILE FUNCTION ARGUMENTS`.
#
# The first line it writes is its greeting: {"ready": true}, or why it cannot judge.  What the scorer prints goes to standard
# error: standard output belongs to the answers.
import asyncio, importlib.util, inspect, json, math, os, sys, traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.stdout = sys.stderr


def say(value):
    answers.write(json.dumps(value, default=plain) + "\n")
    answers.flush()


def plain(x):
    """Numbers of numpy and torch as numbers, anything else as text."""
    try:
        return x.item()
    except Exception:
        return str(x)


def reason(error, file):
    """What went wrong, and where in the scorer's own file."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == file]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    place = "%s:%d: " % (os.path.basename(file), lines[-1]) if lines else ""
    return (place + "%s: %s" % (type(error).__name__, error)).replace("\n", " ")[:400]


def load(file, name):
    sys.path.insert(0, os.path.dirname(file))
    spec = importlib.util.spec_from_file_location("scorer", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scorer"] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def judge(function, sample, more):
    """compute_score(data_source, solution_str, ground_truth, extra_info), or the same with lists, as a batch has them."""
    given = {k: sample[k] for k in ("data_source", "solution_str", "ground_truth")}
    given["extra_info"] = sample.get("extra_info") or {}
    names = inspect.signature(function).parameters
    batch = "solution_strs" in names
    if batch:
        given = {k + "s": [v] for k, v in given.items()}
    if not any(p.kind == p.VAR_KEYWORD for p in names.values()):
        given = {k: v for k, v in given.items() if k in names}
    result = function(**given, **more)
    if inspect.isawaitable(result):
        result = asyncio.run(result)
    if batch:
        result = result[0]
    if isinstance(result, (list, tuple)):
        result = result[0]
    answer = {str(k): v for k, v in result.items()} if isinstance(result, dict) else {"score": result}
    answer["score"] = float(answer["score"])
    if not math.isfinite(answer["score"]):
        raise ValueError("the score is %r" % answer["score"])
    return answer


def main():
    file, name, more = os.path.abspath(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    try:
        function = load(file, name)
    except BaseException as error:
        return say({"failed": reason(error, file)})
    say({"ready": True})
    for line in sys.stdin:
        sample = json.loads(line)
        try:
            answer = judge(function, sample, more)
        except Exception as error:
            answer = {"failed": reason(error, file)}
        answer["id"] = sample["id"]
        say(answer)


main()
