"""Small templates, with their variables, that chat_oracle.py renders: what each construct does."""

X = {
    "s": "Hello, Wörld", "n": 7, "f": 2.5, "t": True, "z": None, "l": [3, 1, 2], "e": [],
    "d": {"b": 2, "a": "one", "C": [1, {"k": "v"}]}, "w": "  two  words \n",
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo <b> & 'q'"},
          {"role": "user", "content": "bye"}],
    "u": "naïve ÇA ß ﬁ ΣΑΣ 日本 🎉", "h": {"items": 1, "get": 2, "pop": 3},
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2
7 / 2, 6 / 3, 1 / 3
2 ** 10, 2 ** -1, -2 ** 2, 2 ** 3 ** 2
-n, +n, - f, -n|abs, --n
1e3, 1.5e-7, 1e16, 123456789012345680.0, 0.0001, 0.00001, 1_000, 1_0.2_5
0.1 + 0.2, 1.0, 100.0, 1e22, 5e-324
true, True, false, none, None
'a' 'b' "c"
'it''s' ~ "q\"q" ~ 'n\nt\t\x41\u00e9\U0001F600\101\q'
'multi
line'
"a" ~ 1 ~ none ~ 2.0 ~ [1, 'x'] ~ {'a': none}
'ab' * 3, 2 * 'xy', 'a' * 0, 'a' * -1, [1, 2] * 2, (1,) * 3
'a' + 'b', [1] + [2], (1,) + (2, 3)
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, 1 == true, 'a' < 'b', 'Z' < 'a', [1, 2] < [1, 3], 'é' > 'z'
1 != 2, 'a' == 'a', none == none, [] == [], {} == {}, {'a': 1} == {'a': 1.0}, [1] == (1,)
1 >= 1 and 2 <= 3, n > 6, n >= 8
not true, not not 1, not '' and 1
1 and 0 or 'x', '' or 'y', 'x' and 'y', none or none
'a' in 'abc', 'x' in 'abc', 1 in [1, 2], 'b' in d, 'z' not in d, 2 in (1, 2), not 1 in [1]
'' in 'abc', 'W' in s, 'user' in m[0].values(), 3 in range(5)
'yes' if n > 5 else 'no'
'yes' if n > 9
('a' if false) is defined, ('a' if false) is undefined
'a' if false else 'b' if false else 'c'
(1 if true else 2) + 1, 1 if true else 2 + 1
(), (1,), (1, 2), [], [1,], {}, {'a': 1,}
{'a': 1, 'b': [1, 2], 3: 'x', none: true, 1.5: false}
{'a': 1, 'a': 2}, {1: 'a', true: 'b', 1.0: 'c'}
['it\'s', "say \"hi\"", 'both \' and "', 'tab\t nl\n back\\', 'é\u200b\x01']
s[0], s[-1], s[7], s[8], s[1:4], s[:-3], s[::-1], s[::2], s[5:1:-2], s[-4:], s[100:]
l[0], l[-1], l[1:], l[::-1], l[:2], l[-2:], l[5:], l[0:3:2], l[::-2], l[2:0:-1]
(1, 2, 3)[::-1], [1, 2, 3][-100:100], range(5)[1], 'abc'[true]
l[9] is defined, l['x'] is defined, l.0, l.1
d.a, d['b'], d.C[1].k, d['C'][1]['k'], d.zz is defined, d['zz'] is undefined
h.items is callable, h['items'], h.get is callable, h['get'], h['pop']
d.items()|list, d.keys()|list, d.values()|list
d.items(), d.keys(), d.values(), d.keys()|length
d.get('a'), d.get('q'), d.get('q', 'dflt')
d.get('a', 5), d.get('nope', [1])
{'k': 1}.k, [1, 2].index(2), [1, 1, 2].count(1), (1, 2).index(2), [1].copy(), {'a': 1}.copy()
missing, missing is defined, missing is undefined, missing|default('d'), missing|d('e')
missing == missing, missing == none, missing == '', missing|list, missing|length, missing ~ 'x'
'x' in missing, not missing, missing|string, missing|upper, missing|join, missing|trim
missing is iterable, missing is sequence, missing is string, missing is mapping, missing is none
z, z is none, z is defined, z|default('d'), z|default('d', true), ''|default('d'), ''|d('x', boolean=true)
s is string, n is string, d is mapping, l is mapping, l is sequence, s is sequence, d is sequence
l is iterable, s is iterable, n is iterable, z is iterable, d.items() is iterable
n is number, f is number, t is number, n is integer, t is integer, f is float, t is boolean
t is true, t is false, n is true, 1 is true, 0 is false, z is false
n is odd, n is even, n is divisibleby 7, n is divisibleby(2), 9 is divisibleby 3
n is eq 7, n is equalto(7), n is ne 8, n is gt 3, n is lt 3, n is ge 7, n is le 7
n is in [7], 'a' is in 'abc', 2 is not in [1], n is greaterthan 1, n is lessthan 1
none is sameas none, true is sameas true, true is sameas 1, d is sameas d, n is sameas 7
'abc' is lower, 'ABC' is upper, 'a1' is lower, '12' is lower, 'aB' is upper
n is not none, s is not string, z is not none, missing is not defined and true
raise_exception is callable, s is callable, 'upper' is filter, 'odd' is test, 'nope' is filter
s|upper, s|lower, 'hELLO wOrld'|capitalize, 'hello-wORLD (foo)  bar_baz'|title, s|length, u|length
u|upper, u|lower, u|capitalize, u|title, u.title(), u.upper(), u.lower(), u.swapcase(), u[::-1]
'ΑΣ'.lower(), 'ΑΣΑ'.lower(), 'Σ'.lower(), 'ΑΣ.'.lower(), 'İ'.lower()|length, 'ǆ'.title(), 'ŉ'|upper
w|trim, '[' ~ w.strip() ~ ']', '[' ~ w.lstrip() ~ ']', '[' ~ w.rstrip() ~ ']', 'xxaxx'.strip('x')
'xyaxy'|trim('xy'), 'abc'.lstrip('ab'), 'abc'.rstrip('bc'), '\u00a0\u2003a\x1c'.strip()|length
w.split(), 'a,b,,c'.split(','), 'a,b,c'.split(',', 1), ' a b  c '.split(none, 1), ''.split(), ''.split(',')
'a,b,c'.rsplit(',', 1), ' a b  c '.rsplit(none, 1), 'a--b--c'.split('--'), 'abc'.split('x')
'a\nb\r\nc\n'.splitlines(), 'a.b.c'.partition('.'), 'a.b.c'.rpartition('.'), 'abc'.partition('.')
'a</think>b</think>c'.split('</think>')[-1], 'a</think>b'.split('</think>')[0].split('<think>')[-1]
s.startswith('Hell'), s.endswith('x'), s.startswith(('a', 'H')), s.endswith(''), 'é'.startswith('é')
'hello world'.title(), "they're bill's".title(), 'ABC'.lower(), 'abc'.upper(), 'abC dEf'.capitalize()
'aXbX'.replace('X', '-'), 'aXbX'.replace('X', '-', 1), 'abc'.replace('', '.'), 'aXb'|replace('X', 5)
'abab'|replace('a', 'x', 1), 'aé'.replace('é', 'e'), 'abc'.replace('', '.', 2)
'abc'.find('c'), 'éabc'.find('c'), 'abc'.find('x'), 'abcabc'.rfind('b'), 'abc'.index('b'), 'aaa'.count('a'), 'aaaa'.count('aa')
', '.join(['a', 'b']), ''.join('abc'), '-'.join(d.keys())
'12'.isdigit(), '1a'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' \n'.isspace(), 'AB'.isupper(), 'ab'.islower(), '½'.isnumeric()
'x'.ljust(3) ~ '|', 'x'.rjust(3, '.'), 'x'.center(4, '*'), 'xy'.center(5, '*'), '7'.zfill(3), '-7'.zfill(4)
'{}-{a}-{} {{}}'.format(1, [2], a='z'), '{1}{0}'.format('a', 'b')
'TestCase'.removeprefix('Test'), 'TestCase'.removesuffix('Case'), 'aBc'.swapcase()
l|sort, l|sort(reverse=true), ['b', 'A', 'c']|sort, ['b', 'A', 'c']|sort(case_sensitive=true), m|sort(attribute='content')|map(attribute='content')|list
l|first, l|last, e|first is defined, e|last, 'abc'|first, 'abc'|last, d|first, l|min, l|max, e|min
l|sum, l|sum(start=10), [{'v': 1}, {'v': 2}]|sum('v'), [1.5, 2]|sum, ['b', 'A']|max, ['b', 'A']|min
l|join(', '), l|join, ['a', 1, none]|join('-'), m|join(', ', attribute='role'), d|join('/')
l|length, d|length, s|count, e|length, 'é'|length, range(3)|length
l|list, 'abc'|list, d|list, range(3)|list, (1, 2)|list
l|reverse|list, s|reverse, d|reverse|list, (1, 2)|reverse|list, l|map('string')|reverse|list
m|map(attribute='role')|list, m|map(attribute='nope', default='x')|list, l|map('string')|list, ['a ', ' b']|map('trim')|join
m|map(attribute='content')|map('upper')|join('|'), [[1, 2], [3, 4]]|map('first')|list, [[1, 2]]|map(attribute=1)|list
[{'a': {'b': [5, 6]}}]|map(attribute='a.b.1')|list, ['a', 'b']|map('replace', 'a', 'x')|list
m|selectattr('role', 'equalto', 'user')|list, m|selectattr('role', 'eq', 'user')|map(attribute='content')|list, m|rejectattr('role', '==', 'user')|list|length
m|selectattr('role')|list|length, m|selectattr('nope')|list, m|selectattr('nope', 'defined')|list, m|rejectattr('role', 'in', ['user'])|list
l|select('gt', 1)|list, l|select('odd')|list, [0, 1, '', 'a']|select|list, [0, 1, none]|reject|list, l|reject('eq', 3)|list
(m|selectattr('role', 'eq', 'user')|list)[-1].content, m|selectattr('role', 'eq', 'user')|first|tojson
m|selectattr('nope')|first is defined, (m|map(attribute='role')) is iterable, (l|select('gt', 100)) and 1
l|unique|list, [1, 1.0, 'a', 'A', 'b']|unique|list, ['a', 'A']|unique(case_sensitive=true)|list
d|dictsort, d|dictsort(true), d|dictsort(reverse=true), {'x': 2, 'y': 1}|dictsort(by='value')
d|items|list, missing|items|list, {'a': 1}|items|first
'42'|int, '42.9'|int, 'x'|int, 'x'|int(5), ' 7 '|int, '1_000'|int, none|int, true|int, 3.99|int, -3.99|int, '1e3'|int, '-5'|int
'2.5'|float, 'x'|float, 'x'|float(1.5), 3|float, '1e3'|float, 'inf'|float, '-Infinity'|float, '0x10'|float, ' 1_0.5 '|float
n|string, none|string, 1.0|string, l|string, 'a'|string|length
-5|abs, 5.5|abs, 2.567|round, 2.567|round(2), 2.5|round, 3.5|round, 7|round, 2.1|round(0, 'ceil'), 2.19|round(1, 'floor')
'a\nb\n\nc'|indent, 'a\nb'|indent(2), 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('> '), ''|indent(first=true), 'a\n'|indent ~ '|'
'one two, three-four'|wordcount, '%s is %d'|format('x', 5), '%(a)s'|format(a=1), '%05.2f|%-5s|%5s|%x' % (3.14159, 'ab', 'cd', 255)
'%s' % n, '%s %r' % ('a', 'b'), '%d%%' % 5, '%+d % d' % (1, 2), '%.2s' % 'abc', '%e' % 1.5, '%g' % 0.0001
s|tojson, u|tojson, u|tojson(ensure_ascii=true), d|tojson, d|tojson(indent=2), l|tojson(indent=4), e|tojson(indent=2), {}|tojson(indent=1)
d|tojson(separators=(',', ':')), d|tojson(sort_keys=true), {'b': 1, 'a': 2}|tojson(indent=2, sort_keys=true), [1, [2]]|tojson(indent=0), [1]|tojson(indent='--')
{1: 'a', true: 'b', none: 'c', 2.5: 'd'}|tojson, (1, 'x')|tojson, [1.0, 1e100, 0.1, -0.0]|tojson, '</script>&\'"\\/\b\f\x7f\x01\u2028'|tojson
m|tojson, [none, true, false]|tojson, 'a'|tojson|length, m[1].content|tojson|safe
'<b>'|safe, '<b>'|escape, ('<b>'|safe) + '<i>', '<i>' + ('<b>'|safe), '<a href="x">\'&'|e, '<b>'|safe ~ '<i>', '<b>'|e is escaped
range(3), range(2, 5)|list, range(5, 0, -2)|list, range(0)|list, range(1, 10, 4), range(3)|sum
dict(a=1, b=2), dict([('a', 1)], b=3), dict({'x': 1}), dict()
namespace(a=1).a, namespace(a=1), namespace({'q': 2}).q, namespace() is mapping, namespace(a=1)['a'], namespace().zz is defined
d|attr('a') is defined, d|attr('items') is callable, namespace(a=4)|attr('a')
strftime_now('%d %b %Y'), strftime_now('%Y-%m-%d'), strftime_now('%B %A %j %%')
'a' ~ 'b' | upper, ('a' ~ 'b') | upper, 'a' + 'b' | upper, 1 + 2 | string | length
not n is none, n is defined and s, n is none or t, (n is none) == false, n == 7 is true
m[0].role == 'user' and m[-1]['role'] != 'assistant', m[1:]|length, m[::-1][0].content, m[-1:][0].role
(m|length) // 2, m|length % 2 == 1, loop is defined, self_ is defined, (messages is defined)
'%s' % (1,), '%s' % [1, 2], '%s' % {'a': 1}, 'no' % {}
[1, 2, 3][1:][0], 'abc'[1:]|upper, 'a b c'.split()[1].upper()|lower ~ '!'
"a" if "a" in "abc" and not "z" in "abc" else "b"
'x'.foo is defined, none.foo is defined, d.__class__ is defined, l.append is defined
none|map('upper')|list, 0|select('odd')|list, ([1]|map('string')).nope is defined, range(3).nope is defined
""" + r"""
{'a': {'b': {'c': [1, {'d': 'deep'}]}}}.a.b.c[1].d
[[1, 2], [3]]|sum(start=[]), [(1, 'a'), (2, 'b')]|map('last')|list
'x' is in ['x'] and 'y' is not in ['x'], 5 is divisibleby 5 and true
"\
", 'tail\\', '\'', "\"", '\\n', '%'
"""


def constructs():
    # A line of EXPRESSIONS is one case; the three whose text goes on in the next line are joined.
    pending = ""
    for line in EXPRESSIONS.strip("\n").split("\n"):
        if not line and not pending:
            continue
        pending = pending + "\n" + line if pending else line
        if pending.endswith("'multi") or pending.endswith('"\\'):
            continue
        yield "{{ [" + pending + "] }}", X
        pending = ""
    yield from STATEMENTS


STATEMENTS = [
    # white space
    ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", {}),
    ("a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n\n", {}),
    ("a {{- ' x ' -}} b {{ 'y' -}}   \n  c\n  {{- 'z' }}\n", {}),
    ("  {%+ if true %}x{% endif +%}\ny{% if true +%}\nz{% endif %}", {}),
    ("a\n  {# note #}\nb {# x -#}  \n c {#- y #}d\n", {}),
    ("{# {{ broken {% #}ok{#- -#} \n z", {}),
    ("\n\n{% set x = 1 %}\n\n{{ x }}\n\n", {}),
    ("a\r\nb{% if true %}\r\nc{% endif %}\rd\r\n", {}),
    ("\t {% if 1 %}\u00a0{% endif %} \n \u2003{%- if 1 %} e{% endif %}", {}),
    ("x{% raw %}{{ no }} {% if %} {# c #}{% endraw %}y", {}),
    ("x {%- raw -%}  {{ no }}  {%- endraw -%}  y", {}),
    ("x\n  {% raw %}\n a\n  {% endraw %}\ny", {}),
    ("{ { }} %} #} {{ '}}' }} {{ {'a': {'b': 1}}['a'] }} { {{- 1 }}", {}),
    ("{{ '{% if %}' }}{{ \"{{\" }}{% if '%}' %}p{% endif %}", {}),
    ("", {}), ("\n", {}), ("plain", {}), ("{{ '' }}", {}),
    ("{{\n  1 +\n  2\n}}{%\n  set y = 3\n%}{{y}}", {}),
    ("{{ 1 }}\n{{ 2 }}\n", {}), ("{{-1}}{{- -1 }}{{+1}}", {}),
    # if
    ("{% if a %}1{% elif b %}2{% elif c %}3{% else %}4{% endif %}", {"b": 0, "c": "x"}),
    ("{% if a %}1{% elif b %}2{% endif %}|", {}),
    ("{% if not a and (b or c) %}y{% else %}n{% endif %}", {"c": 1}),
    ("{% if 1 %}{% if 0 %}a{% else %}{% if 1 %}b{% endif %}{% endif %}{% endif %}", {}),
    # for
    ("{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", X),
    ("{% for x in l %}{{ [loop.index0, loop.revindex, loop.revindex0, loop.first, loop.last, loop.depth, loop.depth0] }}{% endfor %}", X),
    ("{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem|default('-') }}{{ loop.previtem }} {% endfor %}", X),
    ("{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }} {% else %}none{% endfor %}", X),
    ("{% for x in e %}{{ x }}{% else %}empty{% endfor %}{% for x in missing %}x{% else %}E{% endfor %}", X),
    ("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}", X),
    ("{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}", X),
    ("{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, in [(1,)] %}{{ a }}{% endfor %}", {}),
    ("{% for x in 'añb' %}{{ x }}.{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}{% for x in (3,) %}{{ x }}{% endfor %}", {}),
    ("{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}", {}),
    ("{% for x in [1] %}{% break %}{% else %}else{% endfor %}{% for x in [1] %}{% continue %}{% else %}E{% endfor %}", {}),
    ("{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{{ x }}{{ y }}{% if y == 3 %}{% continue %}{% endif %}|{% endfor %}{{ loop.index }}{% endfor %}", {}),
    ("{% for x in l %}{{ loop.cycle('odd', 'even') }} {{ loop.changed(x > 1) }} {% endfor %}", X),
    ("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}", {}),
    ("{% set ns = namespace(n=0, f=false) %}{% for i in l %}{% set ns.n = ns.n + i %}{% if i == 1 %}{% set ns.f = true %}{% endif %}{% endfor %}{{ ns.n }}{{ ns.f }}", X),
    ("{% set ns = namespace(on=true) %}{% for i in l if ns.on %}{{ i }}{% set ns.on = false %}{% endfor %}", X),
    ("{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.role }} {% endfor %}", {"messages": X["m"]}),
    ("{% for m in m %}{{ m.role }}{% endfor %}{{ m[0].role }}", X),
    ("{% for x in l %}{% if loop.first %}{% set y = 'in' %}{% endif %}{{ y }}{% endfor %}{{ y is defined }}", X),
    ("{% set g = l|select('gt', 1) %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}spent{% endfor %}{{ g|list }}", X),
    ("{% set g = l|map('string') %}{{ g|first }}{{ g|list }}{% if g %}true{% endif %}", X),
    ("{% for x in l|reverse %}{{ x }}{% endfor %}{% for a in d.values() %}{{ loop.revindex }}{% endfor %}", X),
    ("{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% else %}- {% endfor %}{% endfor %}", {}),
    # set
    ("{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set e = 1, %}{{ e }}", {}),
    ("{% set x %}a {{ 1 + 1 }} b{% endset %}[{{ x }}]{{ x is string }}{{ x|length }}", {}),
    ("{% set x | upper | trim %}  abc {% endset %}[{{ x }}]", {}),
    ("{% set ns = namespace() %}{% set ns.x %}blk{% endset %}{{ ns.x }}{% set ns.y = [1] %}{{ ns.y + [2] }}{{ ns.zz is defined }}", {}),
    ("{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}", {}),
    ("{% if true %}{% set x = 5 %}{% endif %}{{ x }}{% if false %}{% set q = 1 %}{% endif %}{{ q is defined }}", {}),
    ("{% set ns = namespace(a=1) %}{% set ns.a, b = 5, 6 %}{{ ns.a }}{{ b }}", {}),
    ("{% set messages = messages[1:] %}{{ messages|length }}", {"messages": [1, 2, 3]}),
    ("{% with a = 1, b = a %}{{ a }}{{ b is defined }}{% endwith %}{{ a is defined }}", {}),
    ("{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", {}),
    ("{% filter upper %}a{{ 'b' }}{% for i in [1] %}c{% endfor %}{% endfilter %}d", {}),
    ("{% filter replace('a', 'x')|trim %} banana {% endfilter %}|", {}),
    # macros
    ("{% macro f(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=9) }}{{ f(b=1, a=0) }}{{ f() }}", {}),
    ("{%- macro f(x) -%}\n  <{{ x }}>\n{%- endmacro -%}\n{{ f('a') ~ f('b') }}{{ f('c')|upper }}", {}),
    ("{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, k=3) }}{{ f() }}", {}),
    ("{% macro fact(n) %}{{ 1 if n < 2 else n * (fact(n - 1)|int) }}{% endmacro %}{{ fact(10) }}", {}),
    ("{% set y = 1 %}{% macro f() %}{{ y }}{% set y = 5 %}{{ y }}{% endmacro %}{% set y = 2 %}{{ f() }}{{ y }}", {}),
    ("{% for i in [1, 2] %}{% macro f() %}{{ i }}{{ loop is defined }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}", {}),
    ("{% macro f(x) %}{{ x.role }}{% endmacro %}{% for q in m %}{{ f(q) }}{{ q2 }}{% endfor %}{{ f is callable }}", X),
    ("{% macro inner(x) %}[{{ x }}]{% endmacro %}{% macro outer(l) %}{% for x in l %}{{ inner(x) }}{% endfor %}{% endmacro %}{{ outer([1, [2]]) }}", {}),
    ("{% macro walk(v) %}{% if v is mapping %}{ {%- for k, x in v.items() %}{{ k }}:{{ walk(x) }}{% endfor -%} }{% elif v is iterable and v is not string %}[{% for x in v %}{{ walk(x) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}{{ walk(d) }}", X),
    ("{% macro f(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ f() }}", {}),
    ("{% set ns = namespace(c=0) %}{% macro tick() %}{% set ns.c = ns.c + 1 %}{% endmacro %}{{ tick() }}{{ tick() }}{{ ns.c }}", {}),
    # generation
    ("{% for x in m %}{% if x.role == 'assistant' %}A:{% generation %}{{ x.content }}!{% endgeneration %}\n{% else %}U:{{ x.content }}\n{% endif %}{% endfor %}", X),
    ("é{% generation %}ü{{ 1 }}{% endgeneration %}x{% generation %}{% endgeneration %}y\n{%- generation -%} z {%- endgeneration -%} w", {}),
    ("{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}{% for i in [1, 2] %}{% generation %}{{ loop.index }}{{ loop.last }}{% endgeneration %}{% endfor %}", {}),
    # blocks that call
    ("{% macro box(t, end='.') %}<{{ t }}>{{ caller() }}{{ end }}{% endmacro %}{% call box('a') %}in {{ n }}{% endcall %}|{% call box(t='b', end='!') %}{% for i in l %}{{ i }}{% endfor %}{% endcall %}", X),
    ("{% macro rows(items) %}{% for i in items %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(x, n, more=5) rows(l) %}{{ n }}:{{ x }}{{ more }}{% endcall %}", X),
    ("{% macro f() %}{{ caller is defined }}{{ caller is callable }}{% endmacro %}{{ f() }}{% call f() %}x{% endcall %}", {}),
    ("{% macro f() %}{% set y = 2 %}{{ caller() }}{% endmacro %}{% set y = 1 %}{% call f() %}{{ y }}{% set y = 3 %}{{ y }}{% endcall %}{{ y }}", {}),
    ("{% macro a() %}A{{ caller() }}A{% endmacro %}{% macro b() %}{% call a() %}B{% endcall %}{% endmacro %}{{ b() }}{% call a() %}{% call a() %}x{% endcall %}{% endcall %}", {}),
    ("{%- macro f() -%} [ {{- caller() -}} ] {%- endmacro %}\n  {% call f() -%}\n  x\n  {%- endcall %}\n  y", {}),
    ("{% macro f(a) %}{{ kwargs }}{{ varargs }}{{ a }}{{ caller('q') }}{% endmacro %}{% call(z) f(1, 2, k=3) %}{{ z }}{% endcall %}", {}),
    ("{% macro f(caller=none) %}{{ caller() if caller else 'none' }}{% endmacro %}{{ f() }}{% call f() %}x{% endcall %}", {}),
    ("{% set ns = namespace(n=0) %}{% macro tick() %}{% set ns.n = ns.n + 1 %}{{ caller(ns.n) }}{% endmacro %}{% call(i) tick() %}{{ i }}{% endcall %}{{ ns.n }}", {}),
    ("{% filter upper %}{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}{% endfilter %}", {}),
    # loops that call themselves
    ("{% for x in tree recursive %}{{ x.n }}({{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}{{ loop.last }}){% if x.c %}[{{ loop(x.c) }}]{% endif %}{% endfor %}", {"tree": [{"n": 1, "c": [{"n": 2}, {"n": 3, "c": [{"n": 4}]}]}, {"n": 5}]}),
    ("{% for x in [1, [2, [3]], 4] recursive %}{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}{% endif %}{% else %}none{% endfor %}", {}),
    ("{% for x in [[1, 2], []] if x != 2 recursive %}{% if x is sequence %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% else %}-{% endfor %}", {}),
    ("{% for k, v in d|dictsort recursive %}{{ k }}={% if v is mapping %}{{ loop(v|dictsort) }}{% else %}{{ v }}{% endif %};{% endfor %}", {"d": {"b": {"x": 1, "a": {"q": 2}}, "a": 3}}),
    ("{% for x in [[1]] recursive %}{% set inner = loop %}{% for y in [0] %}{{ inner(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}{% endfor %}", {}),
    ("{% for x in [1, 2, 3] %}{{ loop.changed(x // 2) }}{{ loop.cycle('a', 'b', 'c') }}{{ loop.previtem|default('<') }}{{ loop.nextitem|default('>') }} {% endfor %}", {}),
    # groups, batches, slices
    ("{{ [1, 2, 3, 4, 5]|batch(2)|list }}{{ [1, 2, 3]|batch(2, 'x')|list }}{{ []|batch(3)|list }}{{ 'abcde'|batch(linecount=3, fill_with=0)|list }}{{ range(4)|batch(2)|map('sum')|list }}", {}),
    ("{{ [1, 2, 3, 4, 5]|slice(2)|list }}{{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}{{ [1]|slice(3)|list }}{{ []|slice(2, '-')|list }}{{ 'abcd'|slice(slices=2)|list }}", {}),
    ("{% for role, group in m|groupby('role') %}{{ role }}: {{ group|map(attribute='content')|join(',') }}; {% endfor %}{% for g in m|groupby('role') %}{{ g.grouper }}{{ g.list|length }}{{ g[0] }}{% endfor %}", X),
    ("{{ ['b', 'A', 'a', 'B']|groupby(0) }}{{ [{'k': 'b'}, {'k': 'A'}, {'k': 'a'}, {}]|groupby('k', default='') }}{{ [{'k': 'B'}, {'k': 'a'}]|groupby('k', case_sensitive=true) }}", {}),
    ("{{ [{'a': {'b': 2}}, {'a': {'b': 1}}]|groupby('a.b')|map('first')|list }}{{ [(2, 'x'), (1, 'y'), (2, 'z')]|groupby(attribute=0) }}", {}),
    ("{{ [{'a': 2, 'b': 1}, {'a': 1, 'b': 2}, {'a': 1, 'b': 1}]|sort(attribute='a,b') }}{{ [{'a': 'X', 'b': 1}, {'a': 'x', 'b': 0}]|sort(attribute='a,b', reverse=true) }}", {}),
    # arguments by "*" and "**", and by name
    ("{% macro f(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1]) }}{{ f(*[1, 5, 6]) }}{{ f(0, *[9]) }}{{ f(**{'a': 1, 'c': 7}) }}{{ f(*[1], c=4) }}{{ f(1, **{'b': 8}) }}{{ f(*l) }}", X),
    ("{{ 'a-b'|replace(*['-', '+']) }}{{ [3, 1]|sort(**{'reverse': true}) }}{{ '{}{x}'.format(*[1], **{'x': 2}) }}{{ dict(**{'a': 1}) }}{{ range(*[1, 4])|list }}", {}),
    ("{{ ['a', 'b']|join(d='-') }}{{ 'x'|indent(width=2, first=true) }}{{ {'a': 1}|tojson(indent=none, separators=(',', ':')) }}{{ 'abc'|replace(old='a', new='z') }}{{ 2.345|round(precision=1, method='floor') }}", {}),
    ("{{ m|selectattr('role', 'in', ['user'])|rejectattr('content', 'eq', 'bye')|map(attribute='content')|list }}{{ [1, 2, 3, 4]|select('divisibleby', 2)|list }}{{ [1, 2]|reject('odd')|list }}{{ ['a', 'b']|map('upper')|join }}{{ [{'x': 1}, {}]|map(attribute='x', default=0)|list }}", X),
    # texts
    ("[{{ 'ab'|center(6) }}][{{ 'abc'|center(width=6) }}][{{ 'é'|center(4) }}]{{ '<a>'|forceescape }}{{ '<a>'|e|forceescape }}{{ 'x'|center|length }}", {}),
    ("{{ 'one two three four'|truncate(11, leeway=0) }}|{{ 'one two three'|truncate(9, true, '!', 0) }}|{{ 'short'|truncate(4) }}|{{ 'äöü äöü äöü'|truncate(6, leeway=0) }}|{{ 'abcdefghij'|truncate(5, leeway=0) }}", {}),
    ("{{ 'a b/c?é&~'|urlencode }}|{{ {'a b': 1, 'c/': 'x&y'}|urlencode }}|{{ [('q', 'é'), ('r', none)]|urlencode }}|{{ 5|urlencode }}", {}),
    ("{% set j = joiner('; ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}{% set k = joiner() %}{{ k() }}a{{ k() }}b", X),
    ("{% set x | replace('a', 'b') | upper %}banana {{ 1 }}{% endset %}{{ x }}{% filter indent(2) | trim %}\na\nb{% endfilter %}", {}),
    ("{% macro f() %}x{% endmacro %}\n{% call f() %}a{% endcall %}", {}), ("{% for x in [1] %}\n{{ loop([2]) }}{% endfor %}", {}), ("{% call 5 %}{% endcall %}", {}), ("{% call f() %}", {}),
    ("{{ [1]|slice(0)|list }}", {}), ("{{ [1, 'a']|groupby(attribute='x')|list }}{{ missing|groupby }}", {}), ("{{ range(**[1]) }}", {}), ("{{ f(*1) }}", {}), ("{{ range(**{'a': 1}, *[2]) }}", {}), ("{% for x in [[[1]]] recursive %}\n{{ loop() }}{% endfor %}", {}),
    # runtime errors, each on a known line
    ("a\n{{ raise_exception('no ' ~ 1) }}", {}),
    ("\n\n{{ missing.x }}", {}), ("{% if true %}\n{{ missing[0] }}\n{% endif %}", {}),
    ("{{ d.zz.y }}", X), ("{{ none.x.y }}", {}), ("\n{{ missing() }}", {}), ("{{ 'a'() }}", {}),
    ("{{ 'a' + 1 }}", {}), ("{{ 1 + 'a' }}", {}), ("{{ missing + 'a' }}", {}), ("{{ 'a' + none }}", {}),
    ("{{ 1 / 0 }}", {}), ("{{ 1 // 0 }}", {}), ("{{ 1 % 0 }}", {}), ("{{ [] < 1 }}", {}), ("{{ 'a' < 1 }}", {}),
    ("{{ missing < 1 }}", {}), ("{{ none > 1 }}", {}), ("{{ 1 in 'abc' }}", {}), ("{{ 1 in 5 }}", {}), ("{{ 'a' in none }}", {}),
    ("{% for x in 5 %}{% endfor %}", {}), ("\n{% for x in none %}{% endfor %}", {}), ("{% for a, b in [1] %}{% endfor %}", {}),
    ("{% for a, b in [(1, 2, 3)] %}{% endfor %}", {}), ("{% set a, b = 1, 2, 3 %}", {}), ("{{ -missing }}", {}), ("{{ -'a' }}", {}),
    ("{% set x = 1 %}{% set x.y = 2 %}", {}), ("{% set d.a = 2 %}", X), ("{{ l.append(1) }}", X), ("{{ d.update({}) }}", X), ("{{ d.pop('a') }}", X),
    ("{{ missing|tojson }}", {}), ("{{ range|tojson }}", {}), ("{{ namespace()|tojson }}", {}), ("{{ [missing]|tojson }}", {}), ("{{ (l|map('string'))|tojson }}", X),
    ("{{ {(1, 2): 3}|tojson }}", {}), ("{{ {[1]: 2} }}", {}), ("{{ 5|length }}", {}), ("{{ (l|map('string'))|length }}", X), ("{{ none|length }}", {}),
    ("{{ s[::0] }}", X), ("{{ s['a':] }}", X), ("{{ n[1:] }}", X), ("{{ missing[1:] }}", {}), ("{{ ''.split('') }}", {}), ("{{ 'a'.index('z') }}", {}),
    ("{{ range(200000) }}", {}), ("{{ range(1, 2, 0) }}", {}), ("{{ range('a') }}", {}), ("{{ '%d' % 'a' }}", {}), ("{{ '%s %s' % 'a' }}", {}), ("{{ 'a' % 1 }}", {}),
    ("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", {}), ("{% macro f(a) %}{% endmacro %}{{ f(z=2) }}", {}), ("{{ missing|int }}", {}), ("{{ l|join(attribute='x').y }}", X),
    ("{% macro f() %}\n{{ f() }}\n{% endmacro %}\n{{ f() }}", {}), ("{{ [1, 'a']|sort }}", {}), ("{{ l|map('nope')|list }}", X), ("{{ l|select('nope')|list }}", X),
    ("{{ l|map()|list }}", X), ("{{ 'x'|items|list }}", {}), ("{{ '{} {}'.format(1) }}", {}), ("{{ '{a}'.format(1) }}", {}), ("{{ '}'.format(1) }}", {}), ("{{ '{0} {'.format(1) }}", {}), ("{{ missing|dictsort }}", {}), ("{{ [[1]]|unique|list }}", {}), ("{{ ['a']|sum }}", {}), ("{{ 'abc'.upper(1) }}", {}), ("{{ d.get() }}", X),
    ("{% set ns = namespace(_x=1) %}{{ ns.__init__ }}{{ ''.__class__.__mro__ }}", {}),
    ("{% set ns = namespace() %}{{ ns.a.b }}", {}), ("{{ ns.x }}\n{{ h.pop() }}", {**X, "ns": {}}), ("{{ 'a'.nope() }}", {}), ("{{ loop.index }}", {}),
    # errors of syntax
    ("\n{% if %}{% endif %}", {}), ("{% if a %}", {}), ("{% endif %}", {}), ("{% for x %}{% endfor %}", {}), ("{{ }}", {}), ("{{ 1 + }}", {}),
    ("{{ (1 }}", {}), ("{{ [1) }}", {}), ("{{ 'a }}", {}), ("{{ a b }}", {}), ("{% nope %}", {}), ("a\n{# x", {}), ("{% raw %}x", {}), ("{{ 1", {}),
    ("{% set 1 = 2 %}", {}), ("{% set none = 2 %}", {}), ("{% set x %}a", {}), ("{{ x|nope }}", {}), ("{{ x is nope }}", {}), ("{{ x is }}", {}), ("{{ a.b.1a }}", {}),
    ("{% for loop in [1] %}{% endfor %}", {}), ("{% macro f(a=1, b) %}{% endmacro %}", {}), ("{{ f(a=1, 2) }}", {}), ("{% else %}", {}), ("{% break %}", {}), ("{{ a ? b }}", {}),
    ("{% if a %}\n{% else %}\n{% elif b %}{% endif %}", {}), ("{{ a = 1 }}", {}), ("{{ x['a' }}", {}), ("{% set a.b.c = 1 %}", {}), ("{{ {1, 2} }}", {}), ("{{ @ }}", {}), ("{{ 'a'.'b' }}", {}),
    ("{% for x in [1] %}{% endif %}", {}), ("{% macro f( %}{% endmacro %}", {}), ("{{ x is string is string }}", {}), ("{% filter %}{% endfilter %}", {}), ("{% endraw %}", {}), ("{{ 012 }}", {}),
]
