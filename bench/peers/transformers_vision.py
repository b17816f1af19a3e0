#!/usr/bin/env python3
"""transformers_vision.py - a Qwen2.5-VL that hone exported or converted opens in transformers, and both give the same log-probs of
what hone sampled behind a picture, and the same logits of the whole vocabulary at every position (by `hone verify`).

    transformers_vision.py HONE MODEL PICTURE QUESTION     the picture's size must need no resizing (Pillow's versions differ there)"""
import json, subprocess, sys, tempfile
import numpy as np, torch
from PIL import Image
from safetensors.numpy import save_file
from transformers import Qwen2_5_VLForConditionalGeneration

hone, folder, picture, question = sys.argv[1:5]
line = json.dumps({'messages': [{'role': 'user', 'content': [{'type': 'image', 'image': picture}, {'type': 'text', 'text': question}]}],
                   'max_tokens': 8, 'ignore_eos': True})
out = subprocess.run([hone, 'generate', folder, '--in', '-', '--seed', '1'], input=line, capture_output=True, text=True).stdout
got = json.loads(out)
if 'error' in got: sys.exit(got['error'])
rules = json.load(open(f'{folder}/preprocessor_config.json'))
p, m = rules['patch_size'], rules['merge_size']
img = np.asarray(Image.open(picture).convert('RGB'))
H, W = img.shape[:2]
assert H % (p * m) == 0 and W % (p * m) == 0 and rules['min_pixels'] <= H * W <= rules['max_pixels'], 'a size that is resized'
x = ((img.astype(np.float64) / 255).astype(np.float32) - np.float32(rules['image_mean'])) / np.float32(rules['image_std'])
x = np.stack([x, x]).reshape(1, 2, H // p // m, m, p, W // p // m, m, p, 3).transpose(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(-1, 3 * 2 * p * p)
model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').eval()
ids = torch.tensor([got['tokens']])
kinds = (ids == model.config.image_token_id).int()
n = got['prompt_length']
kinds[:, n:] = 0                                # what the model said itself is text
args = dict(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=torch.tensor(np.ascontiguousarray(x)),
            image_grid_thw=torch.tensor([[1, H // p, W // p]]))
if (ids[0, n:] == model.config.image_token_id).any(): sys.exit('the answer holds an image token: take another seed')
with torch.no_grad():
    try: logits = model(**args, mm_token_type_ids=kinds).logits[0]
    except TypeError: logits = model(**args).logits[0]
lp = torch.log_softmax(logits.double(), -1)
want = [float(lp[n - 1 + i, t]) for i, t in enumerate(got['tokens'][n:])]
worst = max(abs(a - b) for a, b in zip(want, got['logprobs']))
with tempfile.TemporaryDirectory() as golden:
    said = lp[:-1].gather(1, ids[0, 1:, None])[:, 0]
    save_file({'seq0.input_ids': ids[0].int().numpy(), 'seq0.logprobs': said.float().numpy(), 'seq0.logits': logits.float().numpy(),
               'seq0.pixel_values': np.ascontiguousarray(x), 'seq0.image_grid_thw': args['image_grid_thw'].int().numpy()},
              f'{golden}/golden.safetensors')
    told = subprocess.run([hone, 'verify', folder, '--golden', golden], capture_output=True, text=True)
rows = [line.strip() for line in told.stdout.splitlines() if 'log' in line]
print(f'{folder}: {len(want)} tokens, largest difference of a log-prob {worst:.1e}')
print(f'all logits, {logits.shape[0]} x {logits.shape[1]}, up to {logits.abs().max():.1f}:')
print('\n'.join(rows) or told.stderr)
sys.exit(worst > 2e-5 or told.returncode != 0 or not any(r.startswith('ok') and 'logits' in r for r in rows))
