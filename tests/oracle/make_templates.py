"""make_templates.py - writes tests/data/templates/cases.jsonl: small templates and what Jinja2 renders for them.
usage: python tests/oracle/make_templates.py  (from the repository root, with jinja2 installed)"""
import json

from jinja_env import render

ARGS = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <b>&\n\"there\"", "name": None},
        {"role": "assistant", "content": "é数😀", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5, "y": [1, 2]}}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object", "required": []}}}],
    "n": 7, "x": 2.5, "t": True, "f": False, "none": None, "s": "  Hello, World!  ", "e": "", "nums": [3, 1, 2, 1],
    "d": {"b": 2, "a": 1, "C": 3}, "words": ["apple", "Bob", "cat"], "now": "2026-11-15T09:08:07",
    "people": [{"n": "Al", "a": 3, "c": "x"}, {"n": "bo", "a": 1, "c": "y"}, {"n": "Cy", "a": 2, "c": "x"}, {"n": "dd", "c": "Y"}],
    "text": "a,b,,c d\te\n f", "bos_token": "<s>",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7.5 // 2, -7.5 % 2
2 ** 10, 2 ** -1, 2 ** 0.5, 2 ** 3 ** 2
-2 ** 2
1_000 + 0x1F + 0b101 + 0o17
1e3, 1.5e-7, 1e16, 123456789012345.0, 1e22, 0.1 + 0.2, 1/3, 1e15, 5e-324
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing
'tab\tnew\nquote\'\"\\ \x41 \u00e9 \101 \q'
"\é"
[1, 'a', none, true, 2.0, [1], (1,), (), {'k': 'v'}]
{'a': 1, 'b': [1, 2], 3: 'x', none: 1.5}
{'a': 1, 'a': 2}
("it's", 'say "x"', 'both \' "', "\n\t\r\x00\x7f\u00a0\u200b é 😀")
(1, 2) == (1, 2), [1] == (1,), 1 == 1.0, true == 1, 'a' == 1, none == missing, missing == missing
1 < 2 < 3, 1 < 3 < 2, 3 > 2 >= 2 != 1
'a' < 'b', [1, 2] < [1, 3], (1,) < (1, 0)
1 in [1, 2], 'el' in 'hello', 'b' in d, 2 not in nums, 'z' in missing
not true or false and true, not (1 == 2)
none or 'x', 0 and 1, '' or [] or {}
'yes' if n > 5 else 'no', ('x' if false), 'a' if 0 else 'b' if 0 else 'c'
n if t
messages[0].role, messages[-1]['content'], messages[5], messages[0].missing
messages[0]['role'][0], 'héllo'[1], 'abc'[-1]
'hello'[1:3], 'hello'[::-1], 'hello'[-3:], 'hello'[:10], 'héllo😀'[1:], 'hello'[4:1:-1], 'hello'[::2]
nums[1:], nums[::-1], nums[:-1], nums[5:], (1, 2, 3)[1:], nums[-100:100:2]
range(5), range(5) | list, range(1, 10, 3) | list, range(3, 0, -1) | list, range(0)[0:]
range(5)[1], range(5)[-1], 3 in range(5), range(5) | length
d.a, d['b'], d.get('z'), d.get('z', 5), d.items(), d.keys(), d.values()
d.items() | list, d | list, d | length, d.items() | length
d | dictsort, d | dictsort(true), d | dictsort(by='value', reverse=true)
d | items | list
n.foo is defined, missing is defined, none is defined, missing is undefined, n is not undefined
none is none, n is number, x is number, t is number, x is float, n is integer, t is integer, t is boolean
s is string, d is mapping, nums is sequence, s is sequence, d is sequence, nums is iterable, n is iterable, missing is iterable
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), n is eq 7, n is ne 7, n is lt 8, n is ge(7)
s is sameas s, none is sameas none, true is sameas t, 'abc' is lower, 'ABC' is upper, 'aB' is lower, '1' is upper
1 is in [1], 3 is not in [1], n is gt 3 and n is lessthan 8, f is false, t is true, 1 is true
raise_exception is callable, n is callable, missing is callable
s | trim, s | trim | upper, s | lower, 'x' | trim('x'), none | trim, 'xxaxx' | trim('x')
'hello world-foo (bar) it\'s' | title, 'hello world it\'s'.title(), 'hELLO wORLD' | capitalize
'straße ŉ ﬁ' | upper, 'ΑΣ' | lower, 'İ' | lower, 'ǆ' | title, 'éa' | capitalize
words | join(', '), nums | join, [1, none, true] | join('-'), people | join('/', attribute='n'), 'abc' | join('.')
words | first, words | last, [] | first, '' | last, 'abc' | first
nums | sort, words | sort, words | sort(case_sensitive=true), words | sort(reverse=true), people | rejectattr('a', 'undefined') | sort(attribute='a') | map(attribute='n') | list
nums | unique | list, ['a', 'A', 'b'] | unique | list, ['a', 'A'] | unique(true) | list
nums | reverse | list, 'abc' | reverse, (1, 2) | reverse | list
nums | sum, people[:3] | sum(attribute='a'), nums | sum(start=10), nums | min, nums | max, words | max, [] | max, words | min
nums | batch(2) | list, nums | batch(3, 0) | list, nums | slice(3) | list, nums | slice(3, 'x') | list, nums | slice(2, 0) | list
people | groupby('c'), people | groupby('c') | length
people | map(attribute='n') | list, people | map(attribute='a', default=0) | list, words | map('upper') | list, words | map('replace', 'a', 'o') | join
people | selectattr('a') | map(attribute='n') | list, people | selectattr('a', 'defined') | list | length, people | selectattr('c', 'equalto', 'x') | map(attribute='n') | join(' ')
nums | select('odd') | list, nums | reject('odd') | list, nums | select | list, ['', 'a', none] | select | list, nums | select('gt', 1) | list
people | rejectattr('c', 'in', ['x']) | map(attribute='n') | list
missing | default('d'), none | default('d'), none | default('d', true), '' | d('e', boolean=true), missing | d
'3' | int, '3.7' | int, 'x' | int, 'x' | int(-1), 3.9 | int, ' 12 ' | int, '0x1f' | int(base=16), '1_0' | int, none | int, true | int
'3.5' | float, 'x' | float, 'x' | float(1.5), 3 | float, 'inf' | float, '1e3' | float, '1_0.5' | float
-3 | abs, x | abs, -2.5 | abs, 2.5 | round, 3.5 | round, 2.675 | round(2), 42 | round, 2.1 | round(0, 'ceil'), 2.99 | round(1, 'floor'), 1234.5 | round(-2)
'%s is %d and %5.2f|%-5s|%05d|%x|%e|%g|%%|%r|%+d' | format('a', 3.7, 2.345, 'b', 42, 255, 12345.678, 1e-5, "q'", 5)
'%(a)s-%(b)03d' | format(a='x', b=7), '%s' % 'x', '%s %s' % (1, [1]), '%.2f' % 3, '%c' % 'x', '%5s|%.2s' % ('ab', 'abc')
'{} {} {0}' | string, '{0} {1} {0}'.format('a', 1), '{a:>5}|{b:<5}|{c:^5}|{d:05d}|{e:.2f}|{f:,}|{g!r:>5}'.format(a='x', b=2, c='y', d=42, e=3.14159, f=1234567, g='q')
'{:+d} {:x} {:#x} {:b} {:e} {:%} {:g} {:>{}}'.format(5, 255, 255, 5, 12345.678, 0.256, 0.0001, 'r', 4), '{{}} {0.role} {1[0]} {2[a]}'.format(messages[0], nums, d)
'{:.3} {:10.3f}| {:*^9}'.format('abcdef', 2.0, 'mid'), '{:5}|{:5}|{:<5}|'.format(1, 'a', 2.5)
'a\nb\n\nc' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent(2, false, true), 'a\nb' | indent('> '), 'x\n' | indent
'a<b>&"\'' | escape, '<' | e, ('<' | e) + '<', '<' | safe, ['<' | safe], ('a' | safe) ~ '<', ('<' | safe) | e, '<' | safe | forceescape
'one two, three' | wordcount, 'hello world foo bar baz' | truncate(12), 'hello world foo bar' | truncate(10, true), 'ab' | center(5), 'hello world' | truncate(11, leeway=0)
'a b/é?' | urlencode, 'abc' | list, 'abc' | length, [] | length, s | length, '😀é' | count
nums | string, n | string, none | string, d | string, 'a' | string
{'a': [1, 2.0, none, true, 'é"\n\\/\x01']} | tojson
{'a': [1, {}], 'b': [], 'c': {'x': 1}} | tojson(indent=2)
d | tojson(sort_keys=true), d | tojson(separators=(',', ':')), 'é😀\x7f' | tojson(ensure_ascii=true), d | tojson(indent=0), [1] | tojson(indent='--')
{1: 2, none: 3, true: 4, 1.5: 5} | tojson, (1, 2) | tojson, 1e100 | tojson, [] | tojson(indent=4)
messages | tojson
tools | tojson(indent=4)
messages[2]
messages
s.strip(), s.lstrip(), s.rstrip(), 'xxaxx'.strip('x'), 'abcab'.rstrip('ab'), 'www.x'.lstrip('w.'), '\u3000a\u2028'.strip()
text.split(','), text.split(), text.split(',', 1), 'a  b'.split(' '), ''.split(), ''.split(','), ' a b '.split(none, 1), 'a,b,c'.rsplit(',', 1), ' a b  c '.rsplit(none, 1), 'a b'.rsplit()
'a\nb\r\nc\u2028d'.splitlines(), 'a\n'.splitlines(true), 'a,b,c'.partition(','), 'a,b,c'.rpartition(','), 'abc'.partition('x'), 'abc'.rpartition('x')
'hello'.startswith('he'), 'hello'.startswith(('x', 'h')), 'hello'.endswith('lo'), 'hello'.startswith('l', 2), 'hello'.endswith('l', 0, 4), ''.startswith('')
'hello'.find('l'), 'hello'.rfind('l'), 'hello'.find('z'), 'hello'.index('e'), 'héllo'.find('l'), 'hello'.count('l'), 'hello'.find('l', 3), 'aaa'.count('aa'), 'abc'.count('')
'a-b-c'.replace('-', '+'), 'a-b-c'.replace('-', '+', 1), 'abc'.replace('', '.'), 'abc' | replace('b', 'x'), 'aaa' | replace('a', 'b', 2)
', '.join(['a', 'b']), ''.join([]), '-'.join('abc'), 'ab'.zfill(5), '-4'.zfill(4), 'ab'.ljust(4) ~ '|', 'ab'.rjust(4, '.'), 'ab'.center(5, '*'), 'abc'.center(6, '-')
'abc'.isalpha(), '12'.isdigit(), '²'.isdigit(), '²'.isdecimal(), 'a1'.isalnum(), ' \t'.isspace(), ''.isspace(), 'Ab'.islower(), 'AB'.isupper(), 'é'.isascii(), 'a_1'.isidentifier()
'abc'.removeprefix('a'), 'abc'.removesuffix('bc'), 'aBc'.swapcase(), 'abc'.upper().lower().capitalize()
nums.index(2), nums.count(1), (1, 2).index(2), nums.copy(), d.copy()
[1] + [2], (1,) + (2,), 'ab' * 3, [0] * 2, 3 * 'x', 'a' * -1, [1, 2] * 0
true + 1, true * 2.5, -true, +n, - -n, n - -1
namespace(a=1, b='x'), dict(a=1), dict([('k', 2)], z=3), dict({'q': 1})
cycler('a', 'b').next(), joiner('|')() ~ 'x'
strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %j %p %I %y %f %% %e %d %-d'), strftime_now('%d %b %Y')
missing, missing | length, missing | list, missing | join, missing | upper, missing ~ 'x', missing | string
d | attr('keys') is callable, d | attr('a') is defined
'a' if missing else 'b', not missing, missing is none
messages[0].keys() | list, messages[0].items is callable, messages | map(attribute='role') | join(','), messages | map(attribute='content') | map('length') | list
loop is defined, caller is defined
x.is_integer(), 2.0.is_integer()
people | sort(attribute='c,n') | map(attribute='n') | list
(nums | sort)[0], (messages | last).role, messages | length - 1, -n | abs, n | string + 'x'
[[1, 2], [3]] | map('sum') | list, [[1, 2], [3]] | map('join', '+') | list, ['a.b', 'c'] | map('first') | join
nums | map('string') | map('int') | sum, 'a' in ['a'] and 'b' not in 'abc' or false
'x'.__class__ is defined, nums.append is defined, d.update is defined
nums.append, d._x, 'a'.foo
"%s" | format(none), "%d%%" | format(50), '%s' % none, '%s' % [1, 2]
1.0, 100.0, 1.5, -0.0, 1e300 * 1e10, 12345678.9
9223372036854775807, -9223372036854775807
[1, 2, 3][-1], [1, 2, 3][1:][0], {'a': {'b': [10, 20]}}.a.b[1], nums.0
"a" is filter, "upper" is filter, "odd" is test
'abc' == "abc", 'a' != 'b', [1, [2, {'a': 3}]] == [1, [2, {'a': 3}]], {'a': 1, 'b': 2} == {'b': 2, 'a': 1}
'  x ' | trim ~ '|', ('a', 'b') | join, {'a': 1} | join, 'ab' | map('upper') | join('-')
[3, 'a'] | map('string') | sort | join, [true, false] | sort, [2.5, 1, true] | sort
range is defined, strftime_now is defined
"line1
line2"
""".strip("\n")

ERRORS = r"""
missing.x
missing['x']
missing()
missing + 1
1 + missing
'a' + 1
1 + 'a'
[1] + (1,)
none.x.y
messages[0].nope.deeper
d.nope()
nums.append(1)
d.update({})
d.pop('a')
nums.sort()
'x'.__class__.__name__
raise_exception('told you: %s')
raise_exception("multi 'quoted'")
1 / 0
1 // 0
1 % 0
1.5 % 0
n | tojson(indent=missing)
missing | tojson
nums | map('upper') | tojson
{(1, 2): 3} | tojson
namespace(a=1) | tojson
nums | nofilter
nums is notest
nums | map('nofilter') | list
'a' < 1
[1, 'a'] | sort
n | length
none | length
nums | map('string') | length
none | list
none in 5
1 in 'abc'
{[1]: 2}
{} is divisibleby 2
'abc'.index('z')
'abc'.nomethod()
'a'.split('')
'%d' % 'x'
'%s %s' % 'x'
'%s' % (1, 2)
'{} {}'.format(1)
'{a}'.format(b=1)
'{:d}'.format('x')
'{'.format(1)
range(1000000)
range(1, 2, 0)
nums[::0]
nums['a':]
n()
'x'()
missing | int
missing > 1
missing | round
people | sum(attribute='a')
people | sort(attribute='a')
5 | join
5 | items | list
none | first
nums | batch
-'a'
+none
d.items()[0]
','.join([1])
nums.index(99)
raise_exception()
nums | first(1)
'x' | replace('a')
1 if
(1
[1, 2
{'a' 1}
1 +
'unclosed
a b
1..2
x |
x is
$x
range(2)(1)
loop.index
strftime_now(1)
'a' | default(1, 2, 3)
dict(1)
cycler()
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for m in messages %}\n{{ m.role }}: {{ m.content }}\n{% endfor %}\nend\n",
    "  {% if t %}\n  yes\n  {% else %}\n  no\n  {% endif %}\n",
    "a\n  {%- if t %}  b  {%- endif %}\n c {{- n -}} \n d",
    "a {%+ if t %} b {%+ endif +%} \nc", "x {# c #} y\n  {# c2 #}\nz {#- c3 -#} w", "{# a\n b #}\nx", "{{ 1 }}\n{{ 2 }}\n\n", "x\n", "x\n\n", "", "\n", "a\r\nb\rc\n",
    "{% raw %} {{ x }} {% if %} {% endraw %}\nz", "a\n  {% raw -%}\n  {{ x }}\n  {%- endraw %}\nz", "  {% raw %}\n {{ }} \n  {% endraw +%}\nq",
    "{{ '{{' }} {{ \"%}\" }} {{ {'a': {'b': 1}}['a'] }} {{ {}}}",
    "{% for i in range(3) %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.cycle('a', 'b') }}/{{ loop.depth }} {% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in nums if x > 1 %}{{ loop.index }}:{{ x }} {% else %}no{% endfor %}", "{% for x in nums if x > 9 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in nums %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for (a, b) in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}",
    "{% for x in none %}{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in nums %}{% for y in words %}{{ x }}{{ y }}{{ loop.index }} {% endfor %}{{ loop.index }}|{% endfor %}",
    "{% for x in nums %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% set a = 1 %}{{ a }}{% set a, b = 2, 3 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}", "{% set a %}\n x {{ n }}\n{% endset %}[{{ a }}]{{ a is string }}", "{% set a | upper | trim %} x{{ n }} {% endset %}[{{ a }}]",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.a = [] %}{% set ns.a = ns.a + [1] %}{{ ns.a }}{{ ns.b is defined }}{% set ns.a, q = 1, 2 %}{{ ns.a }}{{ q }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}",
    "{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}{% if true %}{% set q = 2 %}{% endif %}{{ q }}", "{% if not tools2 is defined %}{% set tools2 = none %}{% endif %}{{ tools2 }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=5, a=6) }}{{ m() }}{{ m }}{{ m.name }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% set z = 1 %}{% macro m() %}{{ z }}{% set z = 5 %}{{ z }}{% endmacro %}{{ m() }}{{ z }}{% set z = 2 %}{{ m() }}",
    "{% macro m() %}{{ late }}{% endmacro %}{% set late = 3 %}{{ m() }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() -%}\n  a\n{%- endmacro %}[{{ m() }}]{{ m() | upper }}{{ m() ~ 'x' }}",
    "{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in {{ n }}{% endcall %}", "{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) w() %}{{ a + b }}{% endcall %}", "{% macro w() %}{{ caller is defined }}{% endmacro %}{{ w() }}",
    "{% filter upper | replace('A', 'o') %}abc {{ s }}{% endfilter %}", "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% generation %}x {{ n }}\n{% set g = 1 %}{% endgeneration %}\n{{ g is defined }}", "{% for m in messages %}{% generation %}{{ loop.index }}{{ m.role }}{% endgeneration %}\n{% endfor %}", "{% print n %}{% print n, x %}",
    "{% if n > 5 and t %}a{% elif f %}b{% elif n %}c{% else %}d{% endif %}{% if f %}{% elif t %}e{% endif %}", "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{% set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{{ loop_messages | length }}", "{%- set tools = tools or [] %}{{ tools | length }}",
    "{{- bos_token }}\n{%- for message in messages %}\n    {{- '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|assistant|>' }}\n{%- endif %}\n",
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}",
    "{% set content = '<think>a</think>b' %}{{ content.split('</think>')[-1].lstrip('\\n') }}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] }}",
    "{% set g = people | map(attribute='n') %}{{ g | list }}{{ g | list }}", "{% set g = nums | select('odd') %}{{ g | first }}{{ g | first }}{{ g | list }}", "{% for k, v in people | groupby('c') %}{{ k }}:{{ v | length }} {% endfor %}{% for g in people | groupby('c') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner() %}{{ j() }}a{{ j() }}b", "{{ caller }}{{ varargs }}", "{% for i in range(2) %}\n  {% if i %}\n  x\n  {% endif %}\n{% endfor %}\ny",
    "{% set a = namespace(l=[]) %}{% for m in messages %}{% set a.l = a.l + [m.role] %}{% endfor %}{{ a.l | join(' ') }}", "{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ x }}{{ y }}{{ dict(**y) }}{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    # what must not compile or must not run
    "{% if %}{% endif %}", "{% endif %}", "{% if t %}", "{% for x in %}{% endfor %}", "{% for %}{% endfor %}", "{% nosuch %}", "{{", "{% if t", "{# never", "{% raw %} x", "{{ 1 }", "{% set %}", "{% set x %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ f(a=1, 2) }}", "{% if t %}{% endfor %}", "{% else %}", "{{ }}", "{% %}", "{{ ) }}", "{{ (] }}", "{{ 'a' if }}", "{% call 1 %}{% endcall %}", "{% filter nosuch %}a{% endfilter %}", "{% if f %}{{ x | nosuch }}{% endif %}ok", "line1\n{{ 1 / 0 }}",
]


def main():
    cases = [("{{ %s }}" % e, ARGS) for e in split_expressions()] + [("{{ %s }}" % e, ARGS) for e in ERRORS] + [(t, ARGS) for t in TEMPLATES]
    with open("tests/data/templates/cases.jsonl", "w") as out:
        out.write(json.dumps({"args": ARGS}, ensure_ascii=False) + "\n")
        for template, args in cases:
            got = render(template, args)
            assert "0x" not in got.get("text", "") or "0xff" in got["text"], (template, got)
            out.write(json.dumps({"template": template, **got}, ensure_ascii=False) + "\n")
    print(len(cases), "cases")


def split_expressions():
    lines = EXPRESSIONS.split("\n")
    return lines[:-2] + ["\n".join(lines[-2:])]          # the last one holds a line break


main()
