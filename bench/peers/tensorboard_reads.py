#!/usr/bin/env python3
"""tensorboard_reads.py - TensorBoard reads a run's event files and finds what metrics.jsonl says.

    python3 -m venv V && V/bin/pip install tensorboard
    V/bin/python bench/peers/tensorboard_reads.py RUN"""
import json, os, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = sys.argv[1]
folder = next(d for d, _, files in os.walk(run) if any("tfevents" in f for f in files))
events = EventAccumulator(folder, size_guidance={"scalars": 0})
events.Reload()
seen = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
values = missing = other = 0
for line in lines:
    for key, value in line.items():
        if key == "step" or "/" not in key or not isinstance(value, (int, float)):
            continue
        values += 1
        got = seen.get(key, {}).get(line["step"])
        missing += got is None
        other += got is not None and got != struct.unpack("f", struct.pack("f", value))[0]
print(f"{len(lines)} lines, {values} values: {missing} missing, {other} different in {folder}")
good = values > 100 and not missing and not other
print(f"{int(good)} passed, {int(not good)} failed, 0 skipped")
sys.exit(not good)
