"""Writes oracle.jsonl: what jinja2 makes of the templates below.

    python3 testdata/oracle.py > testdata/oracle.jsonl

Made with jinja2 3.1.6 on Python 3.11. The environment is the one Hugging Face
transformers gives chat templates; micro_context.json holds the variables.
"""

import datetime
import json
import pathlib

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = nodes.CallBlock(self.call_method("_print"), [], [], body)
        return call.set_lineno(line)

    def _print(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def strftime_now(format):
    return datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(format)


env = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = strftime_now

TEMPLATES = r"""
{{ 7 // -2 }} {{ 7 % -2 }} {{ -7 // 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 5 // 0.3 }} {{ -1 // 3.0 }} {{ 0.0 // -2 }} {{ 4 % -2.0 }}
{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** 100 }} {{ 10 ** 20 // 3 }} {{ -(10 ** 20) // 7 }} {{ -(10 ** 20) % 7 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775807 - 2 }} {{ 9223372036854775807 * 9223372036854775807 }} {{ 3037000500 * 3037000500 }}
{{ 1 / 3 }} {{ 10 ** 30 / 3 }} {{ 2 / 1 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 1e22 }} {{ 1e23 }} {{ 5e-324 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1.0 % 0 }}
{{ True + True }} {{ True * 3 }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }}
{{ 'a' + 1 }}
{{ 'a' + none }}
{{ [1] + (2,) }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }} {{ [1] * 2 }} {{ (1,) * 2 }} {{ 'a' * 1.0 }}
{{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 2) }} {{ 'Z' < 'a' }} {{ 1 < 2.5 < 3 }} {{ 3 > 2 > 2 }}
{{ 'a' < 1 }}
{{ [1] < (1,) }}
{{ {} < {} }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2.0]] == [1.0, [2]] }} {{ (1,) == [1] }} {{ none == false }}
{{ 'x' in {'x': 1} }} {{ 1 in [1.0] }} {{ 'b' in 'abc' }} {{ '' in 'abc' }} {{ 1 in (2, 3) }} {{ 3 in range(5) }} {{ 'a' not in {} }} {{ 'k' in d.keys() }} {{ 1 in d.values() }} {{ ('k', 1) in d.items() }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 'a' in none }}
{{ 'a' in zzz }} {{ zzz in [1] }} {{ zzz == yyy }} {{ zzz == none }} {{ zzz != 1 }} {{ not zzz }}
{{ zzz in 'abc' }}
{{ zzz + 1 }}
{{ zzz < 1 }}
{{ zzz.x }}
{{ zzz['x'] }}
{{ zzz() }}
{{ -zzz }}
{{ zzz[1:] }}
{{ d[1:] }}
{{ none.x }}|{{ none['x'] is defined }}|{{ n.x }}|{{ s.nope }}|{{ s[99] }}|{{ [1][5] }}|{{ [1]['a'] }}|{{ {1: 2}[1] }}|{{ {1: 2}[1.0] }}|{{ {1: 2}[true] }}|{{ d[[1]] }}
{{ none.x.y }}
{{ s.nope() }}
{{ d.nope() }}
{{ 'abc'[1:2] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[-3:-1] }} {{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[10:] }}| {{ [1,2,3,4][::-2] }} {{ [1,2,3][:-1] }} {{ [1,2,3][-2:] }} {{ (1,2,3)[1:] }} {{ range(10)[2:5]|list }} {{ 'é😀x'[::-1] }} {{ 'é😀x'[1:] }}
{{ [1,2,3][::0] }}
{{ (1,) }} {{ () }} {{ (1, 'a') }} {{ [(1, [2])] }} {{ 1, 2 }} {{ [] }} {{ {} }} {{ {1: none, 'a': (1,), 2.5: true} }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'b': 1, 'a': 2}.keys() }} {{ {'b': 1}.items() }} {{ {'b': 1}.values() }} {{ range(3) }} {{ range(1, 9, 2) }}
{{ {[1]: 2} }}
{{ "it's" }} {{ ["it's"] }} {{ ['q"'] }} {{ ['both \' and "'] }} {{ ['a\\b'] }} {{ ['\n\t\r\x00\x1f\x7f\x85\xa0'] }} {{ ['é😀​\u2028\ufeff\ue000'] }}
{{ 'a\
b' }} {{ '\x41\u0042\103\q\a' }} {{ '\é' }} {{ 'a' 'b' "c" }} {{ '\0' | length }}
{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_0.5_0 }} {{ 1e3 }} {{ 1E-2 }} {{ 00 }}
{{ 1.0 | int }} {{ '0x1f' | int(0, 16) }} {{ ' 12 ' | int }} {{ '1_0' | int }} {{ '1.9' | int }} {{ 'x' | int }} {{ none | int }} {{ [] | int(3) }} {{ true | int }} {{ 1e30 | int }} {{ 'inf' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ '  2.50 ' | float }} {{ 5 | float }}
{{ zzz | int }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.19 | round(1, 'floor') }} {{ 1234.5 | round(-2) }} {{ -2.5 | round }} {{ -5 | abs }} {{ -5.5 | abs }}
{{ 'a-b c_d (e)' | title }} {{ 'a-b c_d' .title() }} {{ "they're bill's" .title() }} {{ 'ABC dEF' | capitalize }} {{ 'ßa ﬁn' .title() }} {{ 'ΑΣ ΑΣΑ' .lower() }} {{ 'ŉ ﬁ' .upper() }} {{ 'ßẞ' .casefold() }} {{ 'aBc' .swapcase() }}
{{ 'a,b,,c' .split(',') }} {{ ' a  b ' .split() }} {{ ' a  b  c ' .split(none, 1) }} {{ 'a,b,c' .rsplit(',', 1) }} {{ ' a  b  c ' .rsplit(none, 1) }} {{ '' .split() }} {{ '' .split(',') }} {{ 'a,b' .split(',', 0) }} {{ 'abc' .split(maxsplit=1) }} {{ '  a b' .split(none, 0) }} {{ ' a b ' .rsplit(none, 0) }}
{{ 'abc' .split('') }}
{{ 'a\nb\r\nc\x0bd\u2028e\n' .splitlines() }} {{ 'a\nb' .splitlines(true) }} {{ '' .splitlines() }} {{ 'a=b=c' .partition('=') }} {{ 'a=b=c' .rpartition('=') }} {{ 'abc' .partition('x') }} {{ 'abc' .rpartition('x') }}
{{ 'abcabc' .find('c', 3) }} {{ 'abcabc' .find('c', -2) }} {{ 'abcabc' .rfind('a', 0, 3) }} {{ 'é😀x' .find('x') }} {{ 'abc' .find('z') }} {{ 'abc' .index('c') }} {{ 'aaa' .count('a') }} {{ 'aaaa' .count('aa') }} {{ 'abc' .count('') }} {{ 'é' .count('') }} {{ 'abc' .startswith('b', 1) }} {{ 'abc' .startswith(('x', 'a')) }} {{ 'abc' .startswith('') }} {{ 'abc' .startswith('', 4) }}
{{ 'abc' .index('z') }}
{{ 'abc' .startswith(['a']) }}
{{ 'aXbX' .replace('X', '-', 1) }} {{ 'abc' .replace('', '.') }} {{ 'abc' | replace('b', 1) }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 123 | replace(2, 'x') }} {{ 'é' .replace('', '-') }}
{{ 'abc' .replace('a', none) }}
{{ 'xxabcxx' .strip('x') }} {{ 'abcba' .strip('ab') }} {{ 'a\u00a0' .strip() | length }} {{ '\u200bx' .strip() | length }} {{ '\x1c a \x85' .strip() }} {{ ' x ' | trim }} {{ 'xax' | trim('x') }} {{ 5 | trim }} {{ none | trim }} {{ zzz | trim }}|
{{ 'x' .center(5) }}| {{ 'x' .center(4) }}| {{ 'xx' .center(5, '*') }} {{ 'x' .ljust(3) }}| {{ 'x' .rjust(3, '0') }} {{ '-5' .zfill(4) }} {{ '5' .zfill(3) }} {{ 'abc' | center(9) }}|
{{ 'abc' .isalpha() }} {{ '12' .isdigit() }} {{ '²' .isdigit() }} {{ '²' .isdecimal() }} {{ '½' .isnumeric() }} {{ 'a1' .isalnum() }} {{ ' ' .isspace() }} {{ '' .isspace() }} {{ 'Ab' .istitle() }} {{ 'AB1' .isupper() }} {{ '1' .isupper() }} {{ 'a' .islower() }} {{ 'é' .isascii() }}
{{ 'abc' .removesuffix('c') }} {{ 'abc' .removeprefix('b') }} {{ '-' .join(['a', 'b']) }} {{ '-' .join('abc') }} {{ '-' .join({'x': 1, 'y': 2}) }}
{{ '-' .join([1]) }}
{{ '%s %r %d %5d|%-5d|%05d %+d %x %X %o %#x %c %%' % ('a', "b'", 3, 4, 5, 6, 7, 255, 255, 8, 255, 'z') }} {{ '%.2f %5.1f %e %g %g %g %G' % (1.005, 2.25, 12345.678, 0.0001, 1e-05, 1000000.0, 1e20) }} {{ '%(a)s' % {'a': 1} }} {{ '%s' % [1] }} {{ '%s' % none }} {{ '%-10s|%10.2s|' % ('ab', 'abc') }} {{ '%d' % 3.9 }} {{ '%i' % true }} {{ '%s' % {'a': 1} }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ '%(a)s' % 5 }}
{{ '%s-%s' | format('a', 1) }} {{ '%(x)s' | format(x=2) }}
{{ '{}-{}' .format(1, 'a') }} {{ '{1}{0}' .format('a', 'b') }} {{ '{x}' .format(x=1) }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}' .format('a', 'b', 'c', 'd') }} {{ '{:05d} {:+d} {:,} {:x} {:#x} {:b}' .format(42, 5, 1234567, 255, 255, 5) }} {{ '{:.2f} {:8.3f} {:e} {:g} {:%} {:.1%}' .format(3.14159, 2.5, 12345.6, 0.5, 0.25, 0.125) }} {{ '{{}} {!r} {!s}' .format('a', 'b') }} {{ '{0[k]} {0.k}' .format(d) }} {{ '{:{w}}|' .format('a', w=4) }} {{ '{:.3}' .format('abcdef') }} {{ '{}' .format(1.0) }} {{ '{:.3}' .format(3.14159) }} {{ '{}' .format([1]) }} {{ '{:,.2f}' .format(1234567.891) }} {{ '{:010.2f}' .format(-3.14159) }} {{ '{:_}' .format(1000000) }} {{ '{:>10}' .format(3) }} {{ '{:<10}' .format(3) }}| {{ '{:d}' .format(true) }} {{ '{}' .format(true) }}
{{ '{}' .format() }}
{{ '{0}{}' .format(1, 2) }}
{{ '{:d}' .format('a') }}
{{ '{' .format(1) }}
{{ '}' .format(1) }}
{{ '<a>' | e }} {{ '<a>' | e | e }} {{ '<a>' | safe | e }} {{ ('<a>' | safe) + '<b>' }} {{ '<b>' + ('<a>' | safe) }} {{ ('<a>' | safe) ~ '<b>' }} {{ '<a>' | safe | upper }} {{ ('x' | safe + '&') }} {{ ['a' | safe] }} {{ '&"\'<>' | escape }} {{ '<a>' | forceescape }} {{ ('<%s>' | safe) % '<x>' }} {{ ('<{}>' | safe).format('<x>') }} {{ (',' | safe).join(['<', 'a' | safe]) }} {{ ('a' | safe).replace('a', '<') }} {{ 'x' | safe | string + '<' }} {{ ('a' | safe)[0] + '<' }} {{ '<a>' | safe | tojson }} {{ '<a>' | safe | trim + '<' }}
{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | sort(case_sensitive=true) }} {{ [3, 1, 2] | sort(reverse=true) }} {{ [{'a': 2}, {'a': 1}] | sort(attribute='a') }} {{ ['a', 'B', 'A', 'b'] | sort }} {{ ['a', 'B', 'A', 'b'] | sort(reverse=true) }} {{ d | sort }} {{ 'cab' | sort }}
{{ [1, 'a'] | sort }}
{{ {'B': 1, 'a': 2, 'C': 0} | dictsort }} {{ {'B': 1, 'a': 2} | dictsort(true) }} {{ {'B': 2, 'a': 1} | dictsort(by='value') }} {{ {'B': 2, 'a': 1} | dictsort(reverse=true) }}
{{ [1] | dictsort }}
{{ ['a', 'A', 'b'] | unique | list }} {{ ['a', 'A'] | unique(true) | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ [1, 3, 2] | max }} {{ ['b', 'A'] | min }} {{ [] | max }}| {{ [{'a': 1}, {'a': 5}] | max(attribute='a') }} {{ [1, 2.5] | sum }} {{ [{'a': 1}] | sum(attribute='a') }} {{ [[1], [2]] | sum(start=[]) }}
{{ messages | groupby('role') | map('first') | list }} {% for k, v in [{'a': 'X', 'b': 1}, {'a': 'x', 'b': 2}, {'b': 3}] | groupby('a', default='q') %}{{ k }}={{ v | length }};{% endfor %}
{{ [1,2,3,4,5] | batch(2) | list }} {{ [1,2,3] | batch(2, 0) | list }} {{ [1,2,3,4,5] | slice(2) | list }} {{ [1,2,3] | slice(2, 'x') | list }} {{ [1,2,3] | reverse | list }} {{ 'abc' | reverse }} {{ [1,2] | first }} {{ [] | first }}| {{ 'abc' | last }} {{ {'a': 1} | first }} {{ range(3) | last }}
{{ [1,2,3] | map('string') | join('-') }} {{ ['a'] | map('upper') | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }} {{ [{}] | map(attribute='x', default='d') | list }} {{ [[1, 2]] | map(attribute=1) | list }} {{ [[5]] | map(attribute='0') | list }} {{ ['a b'] | map('replace', ' ', '_') | list }} {{ none | map('upper') | list }} {{ [1, 0, 2] | select | list }} {{ [1, 2, 3] | select('odd') | list }} {{ [1, 2, 3] | reject('>', 2) | list }} {{ [1, 2] | select('in', [2]) | list }} {{ none | select | list }}
{{ [1] | map('nope') | list }}
{{ [1] | select('nope') | list }}
{{ 5 | map('string') | list }}
{{ [{'a': 1}, {'a': 0}, {}] | selectattr('a') | list }} {{ [{'a': 1}, {}] | rejectattr('a', 'defined') | list }} {{ [{'a': {'b': 2}}] | selectattr('a.b', 'eq', 2) | list | length }}
{% set g = [1,2] | map('string') %}{{ g | list }}{{ g | list }}
{{ [1,2] | map('string') | length }}
{{ [1,2] | map('string') | tojson }}
{{ ([1,2] | select)[0] }}|
{{ 'ab' | list }} {{ d | list }} {{ d.items() | list }} {{ d | items | list }} {{ zzz | items | list }} {{ zzz | list }} {{ (1, 2) | list }} {{ zzz | length }} {{ zzz | join }}| {{ zzz | upper }}|
{{ none | list }}
{{ none | length }}
{{ 5 | length }}
{{ 5 | items | list }}
{{ [1, none, true, 1.5, 'a'] | join(', ') }} {{ [{'a': 1}] | join(',', attribute='a') }} {{ 'abc' | join('-') }} {{ [] | join }}|
{{ 'a b' | wordcount }} {{ 'a\n\nb' | indent }}| {{ 'a\n\nb' | indent(2, true, true) }} {{ 'a\nb\n' | indent('>') }}| {{ 'x' | indent(first=true) }} {{ '' | indent(first=true) }}|
{{ none | default('x') }} {{ zzz | default('x') }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ 0 | d(5, boolean=true) }} {{ d.zz | default({}) }} {{ zzz | default }}|
{{ {'b': [1, {'c': none}], 'a': (1, 2.0)} | tojson }} {{ {'b': 1, 'a': {}} | tojson(indent=2) }} {{ [[], {}, ''] | tojson(indent=1) }} {{ {'z': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }} {{ 'é😀\x7f\n"\\\x01/' | tojson }} {{ 'é😀\x7f\u2028' | tojson(ensure_ascii=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ [1, 2] | tojson(indent='--') }} {{ [1] | tojson(indent=0) }} {{ 1e400 | tojson }} {{ [1,2] | tojson(true) }} {{ 12345678901234567890123 | tojson }} {{ d.items() | list | tojson }}
{{ zzz | tojson }}
{{ d.items() | tojson }}
{{ {(1,): 2} | tojson }}
{{ namespace | tojson }}
{{ tools | tojson(nope=1) }}
{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x // 2) }};{% endfor %}
{% for x in [[1, [2, [3]]], [4]] recursive %}[{{ x[0] }}d{{ loop.depth }}{% if x[1] is defined %}{{ loop([x[1]]) }}{% endif %}]{% endfor %}
{% for x in [1,2] recursive %}{{ loop.index }}{{ loop([5]) if loop.depth0 < 1 }}{{ x }};{% endfor %}
{% for x in [1,2,3,4] if x is even %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.previtem }}{{ loop.nextitem }};{% else %}none{% endfor %}
{% for x in 'abc' %}{{ x }}{% if x == 'b' %}{% break %}{% endif %}{% else %}never{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for x in zzz %}a{% else %}undef{% endfor %}
{% for x in none %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k, v in d.items() %}{{ loop.first }}{{ k }}{{ v }}{% endfor %}{% for p in d.items() %}{{ p }}{% endfor %}
{% for a, in [[1]] %}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }};{% endfor %}{{ x }}
{% for i in [1, 2] %}{% if i == 1 %}{% set y = 5 %}{% endif %}{{ y }}|{% endfor %}{{ y }}|
{% for i in [1, 2] %}{{ n }}{% set n = 9 %}{{ n }};{% endfor %}{{ n }}
{% if true %}{% set q = 1 %}{% endif %}{{ q }}{% if false %}{% set n = 9 %}{% endif %}{{ n }}
{% set n = n + 1 %}{{ n }}{% set n = n + 1 %}{{ n }}
{% for messages in messages %}{{ messages.role }}{% endfor %}{{ messages | length }}
{% for m in messages %}{% for m in [1] %}{{ m }}{{ loop.index }}{% endfor %}{{ m.role }}{{ loop.index }}{% endfor %}
{% for x in [1] %}{% macro f() %}{{ x }}{{ n }}{% endmacro %}{{ f() }}{% endfor %}{{ f is defined }}
{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}|{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(a=5, b=6) }}{{ f() }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(b=2) }}
{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}
{% macro f(a) %}{{ a.x }}{% endmacro %}{{ f() }}
{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}{{ f() }}
{% macro f(a) %}{{ a }}{{ varargs | length }}{% endmacro %}{{ f(*[1, 2, 3]) }}{{ f(**{'a': 7}) }}
{% macro f(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ f(1) }}{{ x }}|
{% macro f(i) %}{{ i }}{% if i > 0 %}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}G{{ n }}{% endmacro %}{{ f() }}
{% macro f() %}{{ late }}{% endmacro %}{{ f() }}|{% set late = 1 %}{{ f() }}
{% macro f() %}{{ n }}{% endmacro %}{{ f() }}|{% set n = 1 %}{{ f() }}
{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}
{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}{{ n }}{% endcall %}{% set y %}{% call f() %}z{% endcall %}{% endset %}{{ y }}
{% macro f() %}[{{ caller('a', b='c') }}]{% endmacro %}{% call(x, b='d') f() %}{{ x }}{{ b }}{% endcall %}
{% macro f() %}[{{ caller is defined }}]{% endmacro %}{{ f() }}
{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}
{% macro f() %}x{% endmacro %}{% call f() %}y{% endcall %}
{% macro f() %}x{% endmacro %}{{ f() + '<' }}{{ f() | length }}{{ f.name }}{{ f is callable }}
{% set ns = namespace(a=1) %}{% macro f() %}{% set ns.a = ns.a + 1 %}{% endmacro %}{{ f() }}{{ f() }}{{ ns.a }}{{ ns['a'] }}{{ ns.b is defined }}{{ ns }}
{% set ns = namespace({'x': 1}, y=2) %}{{ ns.x }}{{ ns.y }}{% for i in [1,2] %}{% set ns.x = i %}{% endfor %}{{ ns.x }}
{% set ns.x = 1 %}
{% set d.x = 1 %}
{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set (c, d2) = 'xy' %}{{ c }}{{ d2 }}{% set t = 1, 2 %}{{ t }}
{% set a, b = 1 %}
{% set x | upper %}abc{{ n }}{% endset %}{{ x }}{% set y | replace('a', 'b') | upper %}aa{% endset %}{{ y }}
{% set x %}{% set inner = 1 %}{{ inner }}{% endset %}{{ x }}{{ inner is defined }}
{% filter upper | replace('A', 'x') %}abc{{ s }}{% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 5 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}
{% with n = 7, m = n %}{{ n }}{{ m }}{% endwith %}{{ n }}
{% generation %}{% set gg = 1 %}{{ gg }}{{ n }}{% endgeneration %}{{ gg is defined }}
{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}
{{ 'a' if true }}{{ 'a' if false }}|{{ ('a' if false) is defined }}{{ 1 if n > 5 else 2 if n > 2 else 3 }}{{ [1 if true else 2] }}
{{ ('a' if false).x }}
{{ true and 0 or 'z' }} {{ not true or true }} {{ not (true and false) }} {{ 1 and 2 }} {{ 0 or '' or none }} {{ not not 1 }} {{ 1 in [1] and 2 not in [1] }} {{ not 1 in [2] }} {{ 1 == 1 in [1] }}
{{ n is number and f is float and n is integer and true is not integer and true is number and true is boolean and s is string and d is mapping and d is iterable and s is sequence and zzz is iterable and none is not iterable and n is not iterable and zzz is sequence and d.items() is not sequence and d.items() is iterable }}
{{ 4 is even }} {{ 4 is divisibleby(2) }} {{ 'a' is in ['a'] }} {{ 'a' is sameas 'a' }} {{ 1 is eq(1.0) }} {{ 3 is gt 2 }} {{ 3 is lessthan 2 }} {{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ f is sameas f }} {{ true is true }} {{ 1 is true }} {{ none is none }} {{ 0 is false }} {{ range is callable }} {{ 'a' | safe is escaped }} {{ zzz is callable }}
{{ 'a' is odd }}
{{ none is divisibleby 2 }}
{{ 1 is nope }}
{{ 1 | nope }}
{{ 'a' if false else 'b' | upper }} {{ (1 | nope) if false else 2 }}
{% if false %}{{ 1 | nope }}{{ 1 is nope }}{% endif %}ok
{% if true %}{{ 1 | nope }}{% endif %}
{% for x in [] %}{{ 1 | nope }}{% endfor %}
{{ range(3) | list }} {{ range(5, 1, -2) | list }} {{ range(0) | list }} {{ range(3) | length }} {{ range(5)[1] }} {{ range(5)[-1] }} {{ range(3) == range(0, 3) }} {{ range(2, 3) }}
{{ range(1000000) }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ range(1.0) }}
{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1), ['b', 2]]) }} {{ dict() }} {{ dict(d, k=5) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}
{{ l.append(1) if false else 'x' }}{{ [].append is defined }}|{{ [].append }}|{{ {}.update is defined }}
{{ {}.update({}) }}
{{ [].append(1) }}
{{ ''.__class__ }}|{{ ''.__class__ is defined }}
{{ ''.__class__.__mro__ }}
{{ d.get('k') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}
{{ d.get() }}
{{ d.get([1]) }}
{{ d.copy() }} {{ [1].copy() }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (1, 1).count(1) }} {{ (1.0).is_integer() }}
{{ [1].index(5) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %a %A %b %B %j %y %I %p %-d %-m %e %U %W %V %u %w %% %F %T %D %R %c %x %X %z|%Z|%f %G %-H %_d %h %n%t%C') }}
{{ strftime_now(5) }}
{{ raise_exception('a' ~ 1) }}
{{ raise_exception() }}
{{ 1 2 }}
{{ }}
{{ (1 }}
{{ 'abc }}
{{ a b }}
{% if %}{% endif %}
{% endif %}
{% if 1 %}{% endfor %}
{% for x in %}{% endfor %}
{% set true = 1 %}
{% set 1 = 2 %}
{% macro f(a=1, b) %}{% endmacro %}
{% nope %}
{# never closed
{% raw %}{{ x }}
{{ f(a=1, 2) }}
{{ f(a=1, a=2) }}
{% break %}
{{ 01 }}
{{ @ }}
{{ ''[,] }}
{{ ''[] }}
{{ ''[:::] }}
{{ [1, 2][:] }}{{ [1, 2][::] }}
{{ [,] }}
{{ (,) }}
{{ {,} }}
{{ f(,) }}
{{ a. }}
{{ a.'b' }}
{{ 1 | }}
{{ 1 is }}
{{ not }}
{{ 1 if }}
{{ {'a'} }}
{{ [1 2] }}
{{ *a }}
{% set %}
{% set x %}
{% for %}
{% for x y %}{% endfor %}
{% macro %}{% endmacro %}
{% macro f %}{% endmacro %}
{% call %}{% endcall %}
{% call n %}{% endcall %}
{% filter %}{% endfilter %}
{% with %}ok{% endwith %}
{% with a %}{% endwith %}
{% if n %}{% else %}{% elif n %}{% endif %}
{% if n %}{% else %}{% else %}{% endif %}
{% print n, 1 %}
{% %}
{% 1 %}
{%- -%}
{% raw %}{% endraw %}|
{% endraw %}
{% for x in [1] %}{% else %}{% break %}{% endfor %}
{% for x in [1, 2] %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}
{{ ns.a.b }}
{% set ns.a.b = 1 %}
{% for ns.a in [1] %}{% endfor %}
{{ x is defined is defined }}
{% raw %}{{ not }} {% code %}{# kept #}{% endraw %}|{%- raw -%}  a  {%- endraw -%}  b
a{# c #}b{#- d -#}  e {#+ f #}g{# h -#}  i
x {{- 1 -}} y {{ 2 }} z {%- if true -%} a {%- endif -%} b
{% if true %}a{% endif %} {% if true +%} b{% endif %}|{%+ if true %} c {%+ endif %}
{{ '{{' }}{{ '%}' }}{{ "}}" }}{{ {'a': {'b': 1}}.a.b }}{{ {'a': {'b': 1}} }}
{{ messages[0].role }}{{ messages.0.role }}{{ messages[0]['role'] }}{{ messages[-1].tool_calls.0.function.name }}{{ d.items is defined }}{{ d.k }}{{ d['items'] }}{{ d["get"] is defined }}
{{ n ~ none ~ 1.0 ~ [1] ~ zzz ~ 'a' }} {{ 1 ~ 2 + 3 ~ 4 }} {{ 'a' ~ 'b' * 2 }} {{ -1 ~ -2 }} {{ -n ** 2 }} {{ -n | abs }} {{ - 5 | string }} {{ 2 * -3 }} {{ +5 }} {{ --5 }}
{{ '<' + 'b' + ('<' | safe) + '&' }} {{ ('<' | safe) + '<' + 'b' }} {{ '<' + ('a' ~ '<') + ('<' | safe) }} {{ 'a' + ('b' + 'c') + 'd' }} {{ 1 + 2 + 3 }} {{ [1] + [2] + [3] }} {{ 'a' ~ ('<' | safe) + '<' }} {{ 'a' + 'b' ~ 1 + 'c' }} {{ ('a' + 'b') ~ 'c' }} {{ 'x' + ('y' if n > 5 else 'z') }}
{{ 'a' + 'b' + 1 }}
{{ 'a' + zzz + 'b' }}
{{ 1 + 'a' + 'b' }}
{{ 'a' + none ~ 'b' + 'c' }}
{% macro f(x) %}[{{ 'a' + x + 'b' }}{% if x %}{{ 'c' + f('') + 'd' }}{% endif %}]{% endmacro %}{{ 'p' + f('q') + f('') ~ f('r') }}
{% set x = namespace(v='') %}{% for m in messages %}{% set x.v = x.v + m.role + ',' %}{% endfor %}{{ x.v }}{{ x.v.split(',')[:-1] }}
{{ ({} | tojson) + ([] | tojson) }} {{ 'abc'[-1] }}{{ 'abc'[-3] }}{{ 'abc'[-4] }}{{ 'é😀'[-2] }}{{ 'é😀'[1] }}{{ 'é😀'[2] }}{{ ''[0] }}{{ ''[-1] }}{{ 'a'[-9223372036854775808] }}{{ 'a'[10 ** 30] }}|
{{ '\ud83d' }}
{{ {'a': 1}.items() | list | first }} {{ d | length }} {{ d.keys() | length }} {{ d.items() | length }} {{ d.values() | list | string }} {{ d.keys() | list | sort | join(',') }} {{ d | dictsort | first }}
{{ d.keys()[0] }}|{{ d.items() is mapping }}{{ d.keys() == d.keys() }}
{{ messages | map(attribute='role') | unique | join('/') }} {{ messages | map(attribute='nope') | list | length }} {{ messages | map(attribute='nope.x', default='q') | list }}
{{ messages | map(attribute='nope.x') | list }}
{{ messages | selectattr('nope.x', 'defined') | list }}
{{ messages | sort(attribute='role') | map(attribute='role') | list }} {{ messages | sort(attribute='role,content') | map(attribute='role') | list }}
{{ -'a' }}
{{ +none }}
{{ big }} {{ big + 1 }} {{ big | string }} {{ [big] }} {{ big // 2 }} {{ f + big }} {{ neg }} {{ neg // 2 }} {{ f }} {{ f | int }} {{ [f, 2.50] }}
{{ messages | map(attribute='content') | map('trim') | join('|') }} {{ messages | selectattr('role', 'in', ['user', 'system']) | map(attribute='role') | join }} {{ (messages | selectattr('role', 'eq', 'user') | first).content }} {{ (messages | last).role }} {{ messages[::-1][0].role }} {{ messages | rejectattr('role', 'equalto', 'user') | list | length }}
{{ 'a' in 'abc' and not 'z' in 'abc' }} {{ n > 2 and n < 5 }} {{ n if n is odd else 'even' }} {{ (n | string)[0] }} {{ (n, f)[1] }} {{ [n, n][0:1] }} {{ 'x' .upper().lower() }} {{ s.strip().split(',')[0] }} {{ s.split(',') | map('trim') | list }}
{{ x.y.z is defined }}
{{ d.zz.y is defined }}
{{ d.zz is defined and d.zz.y }} {{ d.zz is undefined }} {{ d['zz'] is none }} {{ d.get('zz') is none }} {{ (d.zz | default({})).y is defined }}
"""

WHITESPACE = [
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n",
    "  {% if true %}  \nb{% endif %}",
    "{% if true %}\n\n\nb{% endif %}\n\n",
    "a {% if true %}\tb{% endif %}\n \t {% if true %}c{% endif %}",
    "a\n\u00a0{% if true %}b{% endif %}",
    "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}\nend",
    "{% for i in [1,2] -%}\n  {{ i }}\n{%- endfor %}\nend",
    "{%- set x = 1 %}\n{%- set y = 2 %}\n\n{{ x }}{{ y }}\n\n",
    "x\r\ny\rz{% if true %}\r\nq{% endif %}\r\n",
    "a\n  {# c #}\n  b\n {#- d #}\n {# e -#}\n f",
    "{{ 1 }}\n{{ 2 }}\n\n{{ 3 -}}\n\n{{ 4 }}",
    "a\n    {%+ if true %}\n    b\n    {%+ endif +%}\n    c",
    "{# a #}{# b #}\n{# c #}\n\nx",
    "{% if true %}\n  {% if true %}\n    x\n  {% endif %}\n{% endif %}\n",
    "{% raw %}\n  {{ x }}\n{% endraw %}\ny\n  {% raw %} a {% endraw %}\n",
    "{{ 'X' }}: {{ 'm' }}{%- if true %}{% endif %}",
    "a  {{- 'b' -}}  c  {{ 'd' }}  \n",
    "{%- if true -%}\n\n a \n\n{%- else -%}\nb\n{%- endif -%}\n c",
    "{#-#} a {# - #} b {#--#} c",
    "\n\n{% if true %}x{% endif %}\n\n\n",
    "{% if true %}x\n{% endif %}{% if true %}\n  {% endif %}y",
    "{% set x %}\n a \n{% endset %}[{{ x }}]",
    "  {{ 1 }}\n  {%- if true %} {{ 2 }} {% endif -%}  \n 3",
]

context = json.loads((pathlib.Path(__file__).parent / "micro_context.json").read_text())
lines = [line for line in TEMPLATES.replace("\\\nb", "\x00b").split("\n") if line]
lines = [line.replace("\x00", "\\\n") for line in lines]
for i, source in enumerate(lines + WHITESPACE):
    case = {"id": f"o{i:03}", "template": source}
    try:
        text = env.from_string(source).render(**context)
        text.encode()  # a lone surrogate is no text
        case["text"] = text
    except Exception as e:
        case["error"] = type(e).__name__
    print(json.dumps(case, ensure_ascii=False))
