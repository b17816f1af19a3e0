"""memmodel_table.py - writes tests/data/plan/memmodel.json: the numbers of an independent Python model of memory and FLOPs, unrounded.

usage: python3 memmodel_table.py FOLDER_WITH_memmodel.py > tests/data/plan/memmodel.json
The model (memmodel.py) was written before the planner, from the sources of the stacks it describes; test_memmodel.c
asks the planner for the same rows and compares each column within 1 %."""
import json, sys
sys.path.insert(0, sys.argv[1])
import memmodel as M

CONFIG = {name: name for name in M.MODELS}      # tests/data/configs/NAME.json
out = {'params': [], 'flops': [], 'memory': [], 'stages': [], 'recompute': [], 'kept': [], 'balance': []}
for name, m in M.MODELS.items():
    p = M.params(m)
    out['params'].append(dict(config=CONFIG[name], total=p['total'], embed=p['embed'], head=p['head'], attn=p['attn'], dense=p['dense'],
                              shared=p['shared'], experts=p['experts'], vision=p['vision'], active=p['active'], gemm=p['active_matmul'], kv=M.kv_bytes(m)))
    out['flops'].append(dict(config=CONFIG[name], forward=[M.flops_fwd_per_token(m, s) for s in (1024, 2048, 4096, 8192, 32768)], verl=M.verl_N(m)))

def memory_row(r, **kw):
    e = M.eval_row(r, **kw); w = e['worst']
    return dict(config=CONFIG[r['model']], gpus=r['ngpu'], tp=r['tp'], pp=len(r['layout']), ep=r['ep'], split=r['layout'], offload=r['frac'], park=r['optoff'],
                micro_tokens=r['T'], gen_tp=r['gen_tp'], gen_use=r['util'], prompts=r['bsz'], answers=r['n'], mini=r['mini'], kl=r['ref'], max=r['maxresp'],
                mean=2110 - 150 if '30B' not in r['model'] else 1330 - 150,
                drop=kw.get('mode', r['mode']), sel=list(kw.get('sel', r['sel'])), fused=kw.get('fused', r['fused']),
                dp=e['dp'], edp=e['edp'], stage=w['st'], nmb=e['nmb'], inflight=w['infl'], w=w['w'], grad=w['g'], opt=w['o'], act=w['a'], train=w['tot'],
                gen_w=e['gen_w'], kvpool=e['kvpool'], kvtok=e['kvtok'], reshard=e['reshard'], host_worst=e['host'], host_typical=e['host_typ'],
                host_mean=e['host_mean'], host_min=e['host_min'])

rows = M.seed_rows()
out['memory'] = [memory_row(r) for r in rows]
out['stages'] = [dict(layers=s['layers'], p=s['p'], w=s['w'], g=s['g'], act=s['a'], inflight=s['infl'], total=s['tot']) for s in M.eval_row(rows[0])['stages']]
LN_ACT, LN_MOE = ('layernorm', 'moe_act'), ('layernorm', 'moe')
out['recompute'] = [memory_row(rows[8], mode=mode, sel=sel, fused=fused) for mode, sel, fused in
                    (('none', (), False), ('none', (), True), ('none', LN_ACT, True), ('none', LN_MOE, True), ('full', (), True))]
out['recompute'] += [memory_row(rows[4], mode=mode, sel=sel, fused=True) for mode, sel in (('none', ()), ('none', LN_MOE), ('full', ()))]
for name in ('DeepSeek-V3', 'Moonlight-16B-A3B', 'Qwen3-235B-A22B', 'Qwen3-30B-A3B', 'Qwen3-8B', 'Qwen3-4B', 'Qwen2.5-7B', 'Mixtral-8x7B'):
    m = M.MODELS[name]; i = m['L'] - 1
    out['kept'].append(dict(config=CONFIG[name], none=M.act_per_token_layer(m, i, 1, 1), selective=M.act_per_token_layer(m, i, 1, 1, sel=LN_ACT),
                            moe=M.act_per_token_layer(m, i, 1, 1, sel=LN_MOE), full=M.act_per_token_layer(m, i, 1, 1, mode='full')))
D, Q = M.MODELS['DeepSeek-V3'], M.MODELS['Qwen3-235B-A22B']
for config, m, lay, tp, ep in (('DeepSeek-V3', D, M.pp_layout(D, 12, last=6), 8, 8), ('DeepSeek-V3', D, [6] + [5] * 11, 8, 8),
                               ('DeepSeek-V3', D, [6, 6] + [5] * 9 + [4], 8, 8), ('DeepSeek-V3', D, M.pp_layout(D, 16, last=1), 8, 8),
                               ('Qwen3-235B-A22B', Q, M.pp_layout(Q, 8, account_embed=True, account_loss=True), 4, 4), ('Qwen3-235B-A22B', Q, M.pp_layout(Q, 8, last=10), 4, 4)):
    load = M.stage_load(m, lay)
    out['balance'].append(dict(config=config, split=lay, tp=tp, ep=ep, load=load, max_mean=max(load) / (sum(load) / len(load)),
                               params=max(M.stage_params(m, lay, i, tp, ep)['total'] for i in range(len(lay)))))
json.dump(out, sys.stdout, indent=0, separators=(',', ':'))
