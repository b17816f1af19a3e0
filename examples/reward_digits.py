# reward_digits.py - a scorer in Python, of verl's shape: the share of an answer that is digits.
#
#     hone grade --python examples/reward_digits.py --in answers.jsonl --out scores.jsonl
#     hone train run.yaml reward.python=examples/reward_digits.py
def compute_score(data_source, solution_str, ground_truth, extra_info):
    digits = sum(c.isdigit() for c in solution_str)
    return {"score": digits / max(len(solution_str), 1), "acc": solution_str.strip() == ground_truth}
