package jinja

import (
	"iter"
	"slices"
)

// indexedDict is the size from which a dict keeps a map beside its entries;
// below it a scan is faster.
const indexedDict = 9

// Dict is a Python dict: it keeps the order in which keys were first set.
// Keys are strings; a dict a template builds may also hold other keys, which
// this interface does not show. It is not safe for concurrent change.
type Dict struct {
	entries []entry
	index   map[string]int // string keys, once there are indexedDict entries
}

type entry struct {
	key, value Value
}

// NewDict returns an empty dict with room for n keys.
func NewDict(n int) *Dict {
	return &Dict{entries: make([]entry, 0, max(n, 0))}
}

// Set gives key a value. A key that is already there keeps its place.
func (d *Dict) Set(key string, v Value) {
	if i := d.find(key); i >= 0 {
		d.entries[i].value = v
		return
	}
	d.entries = append(d.entries, entry{String(key), v})
	switch {
	case d.index != nil:
		d.index[key] = len(d.entries) - 1
	case len(d.entries) >= indexedDict:
		d.reindex()
	}
}

// Get returns the value of key.
func (d *Dict) Get(key string) (Value, bool) {
	if i := d.find(key); i >= 0 {
		return d.entries[i].value, true
	}
	return Value{}, false
}

// Delete removes key, if it is there.
func (d *Dict) Delete(key string) {
	i := d.find(key)
	if i < 0 {
		return
	}
	d.entries = slices.Delete(d.entries, i, i+1)
	d.reindex()
}

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Clone returns a copy that shares the values.
func (d *Dict) Clone() *Dict {
	c := &Dict{entries: slices.Clone(d.entries)}
	c.reindex()
	return c
}

// All yields the keys and values in order.
func (d *Dict) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for i := range d.entries {
			e := &d.entries[i]
			if e.key.isString() && !yield(e.key.text(), e.value) {
				return
			}
		}
	}
}

func (d *Dict) reindex() {
	d.index = nil
	if len(d.entries) < indexedDict {
		return
	}
	d.index = make(map[string]int, len(d.entries))
	for i := range d.entries {
		if k := d.entries[i].key; k.isString() {
			d.index[k.text()] = i
		}
	}
}

// find returns the place of a string key, or -1.
func (d *Dict) find(key string) int {
	if d.index != nil {
		if i, ok := d.index[key]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if k := &d.entries[i].key; k.kind == KindString && k.text() == key {
			return i
		}
	}
	return -1
}

// findValue returns the place of a key of any hashable kind, or -1. Python
// finds 1, 1.0 and True by each other.
func (d *Dict) findValue(key Value) int {
	if key.isString() {
		return d.find(key.text())
	}
	for i := range d.entries {
		if k := d.entries[i].key; !k.isString() && equalScalars(k, key) {
			return i
		}
	}
	return -1
}

// setValue is Set for a key of any hashable kind.
func (d *Dict) setValue(key, v Value) {
	if key.isString() {
		d.Set(key.text(), v)
		return
	}
	if i := d.findValue(key); i >= 0 {
		d.entries[i].value = v
		return
	}
	d.entries = append(d.entries, entry{key, v})
	if d.index == nil {
		d.reindex()
	}
}
