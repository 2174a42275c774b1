// Package jinja renders chat templates: the Jinja2 language as Python runs it.
//
// The environment is the one model authors write for (Hugging Face
// transformers: trim_blocks, lstrip_blocks, loop controls, an immutable
// sandbox, its own tojson, raise_exception and strftime_now), with Python's
// values behind it: ordered mappings, integers of any size, Python's text for
// every number and container. What Python refuses is an error here too. A
// Template is immutable and renders from many goroutines at once; steps, depth
// and output are bounded, so no template and no input can stop the process.
package jinja

import (
	"iter"
	"math/big"
	"unsafe"
)

// Kind says what a Value is. The kinds are those of JSON, with Python's split
// of numbers, plus undefined.
type Kind uint8

// The kinds of values. Everything a template can hold beside JSON's values
// (macros, generators, namespaces) is KindOther.
const (
	KindUndefined Kind = iota
	KindNone
	KindBool
	KindInt
	KindFloat
	KindString
	KindList
	KindTuple
	KindDict
	KindOther

	kindIterator // one-pass generator
	kindRange
	kindView // dict.items(), keys(), values()
	kindNamespace
	kindMacro
	kindBuiltin
	kindMethod
	kindLoop
	kindCycler
	kindJoiner
)

// Flags refine a kind.
const (
	flagSafe     uint8 = 1 << iota // string: Markup, whose + escapes the other side
	flagBig                        // int: ref is a *big.Int outside int64
	flagSecurity                   // undefined: the sandbox refused the attribute
	flagMessage                    // undefined: the text is the whole message, not a name
)

// Value is one Python value. It is small and passed by value; lists and dicts
// are shared, and rendering never changes them. The zero Value is undefined.
type Value struct {
	kind Kind
	flag uint8
	num  uint64         // bool, int64, float64 bits, or the length of a string
	ref  unsafe.Pointer // string bytes, *List, *Dict or the pointer the kind implies
}

// Undefined returns the value of a name that is not set.
func Undefined() Value { return Value{} }

// None returns Python's None, JSON's null.
func None() Value { return Value{kind: KindNone} }

// Bool returns a Python bool.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.num = 1
	}
	return v
}

// Int returns a Python int.
func Int(i int64) Value { return Value{kind: KindInt, num: uint64(i)} }

// BigInt returns a Python int of any size. The integer must not change
// afterwards.
func BigInt(i *big.Int) Value {
	if i.IsInt64() {
		return Int(i.Int64())
	}
	return Value{kind: KindInt, flag: flagBig, ref: unsafe.Pointer(i)}
}

// Float returns a Python float.
func Float(f float64) Value { return Value{kind: KindFloat, num: floatBits(f)} }

// String returns a Python str. The text is expected to be valid UTF-8.
func String(s string) Value {
	return Value{kind: KindString, num: uint64(len(s)), ref: unsafe.Pointer(unsafe.StringData(s))}
}

// FromList returns l as a value. The list must not change while a render uses
// it.
func FromList(l *List) Value {
	if l == nil {
		l = &List{}
	}
	return Value{kind: KindList, ref: unsafe.Pointer(l)}
}

// FromDict returns d as a value. The dict must not change while a render uses
// it.
func FromDict(d *Dict) Value {
	if d == nil {
		d = &Dict{}
	}
	return Value{kind: KindDict, ref: unsafe.Pointer(d)}
}

// Kind says what v is.
func (v Value) Kind() Kind { return min(v.kind, KindOther) }

// IsUndefined reports whether v is the value of an unset name.
func (v Value) IsUndefined() bool { return v.kind == KindUndefined }

// IsNone reports whether v is None.
func (v Value) IsNone() bool { return v.kind == KindNone }

// Str returns the text of a string, and "" for any other value.
func (v Value) Str() string {
	if v.kind != KindString {
		return ""
	}
	return v.text()
}

// text is the string that ref and num describe: of a string, or the name an
// undefined value was looked up by.
func (v Value) text() string { return unsafe.String((*byte)(v.ref), int(v.num)) }

// Bool returns the truth of a bool, and false for any other value.
func (v Value) Bool() bool { return v.kind == KindBool && v.num == 1 }

// Int64 returns the value of an int that fits 64 bits.
func (v Value) Int64() (int64, bool) {
	return int64(v.num), v.kind == KindInt && v.flag&flagBig == 0
}

// Float64 returns the value of a float.
func (v Value) Float64() (float64, bool) {
	return floatFrom(v.num), v.kind == KindFloat
}

// List returns the elements of a list or tuple, and nil for any other value.
func (v Value) List() *List {
	if v.kind != KindList && v.kind != KindTuple {
		return nil
	}
	return (*List)(v.ref)
}

// Dict returns the mapping of a dict, and nil for any other value.
func (v Value) Dict() *Dict {
	if v.kind != KindDict {
		return nil
	}
	return (*Dict)(v.ref)
}

func (v Value) bigInt() *big.Int {
	if v.flag&flagBig != 0 {
		return (*big.Int)(v.ref)
	}
	return big.NewInt(int64(v.num))
}

func (v Value) isString() bool { return v.kind == KindString }

func (v Value) isSafe() bool { return v.kind == KindString && v.flag&flagSafe != 0 }

// safe marks a string as Markup.
func (v Value) safe() Value {
	v.flag |= flagSafe
	return v
}

// sameSafety marks a string made from v as Markup when v is.
func (v Value) sameSafety(s string) Value {
	r := String(s)
	r.flag = v.flag & flagSafe
	return r
}

func tuple(vs ...Value) Value {
	return Value{kind: KindTuple, ref: unsafe.Pointer(&List{items: vs})}
}

func listOf(vs []Value) Value {
	return Value{kind: KindList, ref: unsafe.Pointer(&List{items: vs})}
}

// undefinedName is the value of a name or attribute that is not there.
func undefinedName(name string) Value {
	v := String(name)
	v.kind = KindUndefined
	return v
}

// undefinedBecause is an undefined value whose use fails with message.
func undefinedBecause(message string) Value {
	v := undefinedName(message)
	v.flag = flagMessage
	return v
}

// List is a Python list or tuple. It is not safe for concurrent change.
type List struct {
	items []Value
}

// NewList returns a list of vs, which it keeps.
func NewList(vs ...Value) *List { return &List{items: vs} }

// Append adds v at the end.
func (l *List) Append(v Value) { l.items = append(l.items, v) }

// Len returns the number of elements.
func (l *List) Len() int { return len(l.items) }

// At returns the element at index i, which must be in range.
func (l *List) At(i int) Value { return l.items[i] }

// All yields the elements in order.
func (l *List) All() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		for i, v := range l.items {
			if !yield(i, v) {
				return
			}
		}
	}
}
