package jinja

import (
	"strconv"
	"strings"
)

// attrPath is what attribute= names: keys and indexes, one inside the other.
type attrPath []Value

func newAttrPath(v Value) (attrPath, error) {
	switch {
	case v.IsNone():
		return nil, nil
	case v.isString():
		var path attrPath
		for part := range strings.SplitSeq(v.text(), ".") {
			if i, err := strconv.Atoi(part); err == nil && part[0] != '-' && part[0] != '+' {
				path = append(path, Int(int64(i)))
			} else {
				path = append(path, String(part))
			}
		}
		return path, nil
	case v.kind == KindInt:
		return attrPath{v}, nil
	default:
		return nil, typeFault("attribute must be a string or a number")
	}
}

// get follows the path. otherwise, if given, stands for what is not there.
func (p attrPath) get(in *interp, v Value, otherwise *Value) (Value, error) {
	for _, part := range p {
		var err error
		if v, err = in.item(v, part); err != nil {
			return Value{}, err
		}
		if v.IsUndefined() && otherwise != nil {
			v = *otherwise
		}
	}
	return v, nil
}
