"""make_odd_rewards.py - makes tests/data/verl/odd.jsonl: answers glued together from the pieces that verl's scorers treat specially, and what
verl itself says of them.  usage: make_odd_rewards.py VERL/verl/utils/reward_score [SEED [ROWS]] > odd.jsonl
Prefers rows that earn a reward, since most random ones do not.  Scorers: see the list at the end."""
import contextlib, io, json, random, sys

sys.path.insert(0, sys.argv[1])
import gsm8k, math_dapo, math_reward

random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
ROWS = int(sys.argv[3]) if len(sys.argv) > 3 else 700
PIECES = ["\\boxed{", "}", "{", "\\boxed ", "$", "\\frac", "\\sqrt", "1", "2", "12", "3", "/", "=", "x", "x=", "\\text{", " m}",
          "\\text{ cm}", "\\text{and}", ",", "{,}", "\\!", "\\\\", "tfrac", "dfrac", "\\left(", "\\right)", "^\\circ",
          "^{\\circ}", "\\%", "%", ".", "0.5", " .", ".5", "\n", " ", "#### ", "####", "Answer:", "answer :", "ANSWER: ",
          "an\u017fwer:", "Answer:\n", "-", "5", "1,234", "a ", "an ", "\\ ", "mbox", "\\text{}^2", "dollars", "ways", "\"",
          "\\dots", "\\ldots", "\u00b2", "\u00e9", "\u0663", "\u3000", "\u00a0", "frac12", "sqrt3", "\\overline{", "\\textbf{",
          "\\boxed{\\boxed{", "\\fbox{", "-0", "00", "1/2", "-1/2", "\U0001d7d9", "[INVALID]", "\t", "\r", "x" * 90, "y" * 110,
          "\\text{\ns}"]


def glue(most):
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, most)))


def minerva_only(solution, truth):
    right, pred = math_dapo.is_correct_minerva(solution[-300:], truth)
    return {"score": 1.0 if right else -1.0, "acc": right, "pred": pred}


SCORERS = [("openai/gsm8k", gsm8k.compute_score), ("gsm8k_flexible", lambda s, t: gsm8k.compute_score(s, t, method="flexible")),
           ("lighteval/MATH", math_reward.compute_score), ("math_dapo_boxed", math_dapo.compute_score),
           ("math_dapo_strict_box", lambda s, t: math_dapo.compute_score(s, t, strict_box_verify=True)), ("aime24", minerva_only)]
made, wins = 0, 0
while made < ROWS:
    truth, solution = glue(5), glue(8)
    if random.random() < 0.5:
        solution += random.choice(["#### ", "\\boxed{", "Answer: ", "\\boxed ", "Answer:"]) + truth
        solution += random.choice(["", "}", "}$", "\n", " ", "} x"])
    source, score = random.choice(SCORERS)
    with contextlib.redirect_stdout(io.StringIO()):
        got = score(solution, truth)
    got = got if isinstance(got, dict) else {"score": float(got)}
    if got["score"] <= 0 and random.random() < 0.95:
        continue
    row = {"data_source": source, "solution_str": solution, "ground_truth": truth, **got}
    print(json.dumps(row, ensure_ascii=False))
    made += 1
