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
