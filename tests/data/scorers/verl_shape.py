"""A scorer as verl's users write them; the answer's text says how it is to behave."""
import os
import time

print("loading")  # must not be taken for an answer


def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.0):
    if solution_str not in ("right", "wrong"):
        print("judging", solution_str)
    if solution_str == "raise":
        raise KeyError("no such thing")
    if solution_str == "die":
        os._exit(3)
    if solution_str == "hang":
        while True:
            pass
    if solution_str == "sleep":
        time.sleep(100)
    if solution_str == "nan":
        return float("nan")
    if solution_str == "list":
        return [0.25, "more"]
    if solution_str == "dict":
        return {"score": 0.75, "acc": True, "pred": solution_str, "extra": extra_info}
    return float(solution_str == ground_truth) + bonus


def compute_scores(data_sources, solution_strs, ground_truths, extra_infos):
    assert len(data_sources) == len(solution_strs) == len(ground_truths) == len(extra_infos)
    scores = [compute_score(*one) for one in zip(data_sources, solution_strs, ground_truths, extra_infos)]
    return [{"score": s, "together": len(scores)} if isinstance(s, float) else s for s in scores]


def compute_too_few(data_sources, solution_strs, ground_truths, extra_infos):
    return [1.0] * (len(solution_strs) - 1)


async def compute_later(data_source, solution_str, ground_truth, extra_info):
    return int(solution_str == ground_truth)


class Number:
    def item(self):
        return 7


def compute_number(solution_str, **others):
    return {"score": 1, "from": sorted(others), "number": Number()}


def own_names(answer, truth):
    return 1.0


class Mute:
    def __str__(self):
        raise RuntimeError("no text")


def compute_beside(solution_str, ground_truth):
    """A score, and beside it what JSON cannot hold."""
    circle, deep = [1], []
    circle.append(circle)
    for _ in range(5000):
        deep = [deep]
    beside = {
        "not finite": [float("nan"), float("inf"), -float("inf"), 1.5],
        "keys": {(1, 2): "a", 3: "b", None: "c"},
        "circle": circle,
        "deep": deep,
        "surrogate": "a\ud800b",
        "mute": [Mute(), {1}, b"x"],
        "long": 2**100 if ground_truth else 10**5000,
    }
    own = [solution_str, len(solution_str), solution_str == ground_truth]
    return {"score": 1.0, "acc": 0.5, "beside": beside.get(solution_str, own)}


def compute_much(solution_str):
    """More beside a score than a line has room for."""
    answer = {"one": "x\u00e9" * 100000, "list": [[1.5] * 50000], "many": {}}
    if solution_str == "many":
        answer = {str(i): "y" * 50 for i in range(5000)}
    return {**answer, "score": 1.0, "acc": 0.5}
