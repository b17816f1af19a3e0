#!/usr/bin/env python3
"""image_path.py - the peer of bench/bench_image.c: Pillow decodes, transformers' fast processor resizes, normalises and cuts; one thread,
processor time.   image_path.py FILE [SECONDS]"""
import io, sys, time
import torch
from PIL import Image
import transformers
torch.set_num_threads(1)
Fast = getattr(transformers, 'Qwen2VLImageProcessorFast', None) or transformers.Qwen2VLImageProcessor
mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
proc = Fast(min_pixels=3136, max_pixels=12845056, patch_size=14, temporal_patch_size=2, merge_size=2, image_mean=mean, image_std=std)
data, seconds, n, decode = open(sys.argv[1], 'rb').read(), float(sys.argv[2]) if len(sys.argv) > 2 else 3, 0, 0.0
for _ in range(2): proc(images=[Image.open(io.BytesIO(data)).convert('RGB')], return_tensors='pt')
t0 = time.process_time()
while time.process_time() - t0 < seconds or n < 3:
    t = time.process_time(); img = Image.open(io.BytesIO(data)).convert('RGB'); img.load(); decode += time.process_time() - t
    out = proc(images=[img], return_tensors='pt'); n += 1
each = (time.process_time() - t0) / n
print(f"{sys.argv[1]}: {1e3 * each:.2f} ms a picture (decode {1e3 * decode / n:.2f}), grid {out['image_grid_thw'].tolist()}, {type(proc).__name__}, {n} times")
