package jinja

// testFunc is a test: what stands after "is".
type testFunc func(in *interp, v Value, a args) (bool, error)

// testNamed returns the test with a name, or nil.
func testNamed(name string) testFunc {
	switch name {
	case "defined":
		return kindTest(func(v Value) bool { return !v.IsUndefined() })
	case "undefined":
		return kindTest(Value.IsUndefined)
	case "none":
		return kindTest(Value.IsNone)
	case "boolean":
		return kindTest(func(v Value) bool { return v.kind == KindBool })
	case "true":
		return kindTest(Value.Bool)
	case "false":
		return kindTest(func(v Value) bool { return v.kind == KindBool && v.num == 0 })
	case "integer":
		return kindTest(func(v Value) bool { return v.kind == KindInt })
	case "float":
		return kindTest(func(v Value) bool { return v.kind == KindFloat })
	case "number":
		return kindTest(Value.isNumber)
	case "string":
		return kindTest(Value.isString)
	case "mapping":
		return kindTest(func(v Value) bool { return v.kind == KindDict })
	case "sequence":
		return kindTest(isSequence)
	case "iterable":
		return kindTest(isIterable)
	case "callable":
		return kindTest(isCallable)
	case "escaped":
		return kindTest(Value.isSafe)
	case "odd":
		return remainderTest(2, 1)
	case "even":
		return remainderTest(2, 0)
	case "divisibleby":
		return testDivisible
	case "upper", "lower":
		return func(in *interp, v Value, a args) (bool, error) {
			s, err := in.str(v)
			if err != nil {
				return false, err
			}
			return isClass("is"+name, s), a.none(name)
		}
	case "filter":
		return func(_ *interp, v Value, a args) (bool, error) {
			return filterNamed(v.Str()) != nil, a.none(name)
		}
	case "test":
		return func(_ *interp, v Value, a args) (bool, error) {
			return testNamed(v.Str()) != nil, a.none(name)
		}
	case "sameas":
		return testSame
	case "in":
		return operatorTest(opIn)
	case "eq", "equalto", "==":
		return operatorTest(opEqual)
	case "ne", "!=":
		return operatorTest(opNotEqual)
	case "lt", "lessthan", "<":
		return operatorTest(opLess)
	case "le", "<=":
		return operatorTest(opLessEqual)
	case "gt", "greaterthan", ">":
		return operatorTest(opGreater)
	case "ge", ">=":
		return operatorTest(opGreaterEqual)
	default:
		return nil
	}
}

func kindTest(f func(Value) bool) testFunc {
	return func(_ *interp, v Value, a args) (bool, error) { return f(v), a.none("test") }
}

func operatorTest(op operator) testFunc {
	return func(in *interp, v Value, a args) (bool, error) {
		b, err := a.bind(op.String(), 1, "other")
		if err != nil {
			return false, err
		}
		return in.compare(op, v, b.value[0])
	}
}

// isSequence: has a length and can be indexed. Undefined has both in Jinja2.
func isSequence(v Value) bool {
	switch v.kind {
	case KindList, KindTuple, KindString, KindDict, KindUndefined, kindRange:
		return true
	default:
		return false
	}
}

func isIterable(v Value) bool {
	switch v.kind {
	case kindView, kindIterator, kindLoop:
		return true
	default:
		return isSequence(v)
	}
}

func isCallable(v Value) bool {
	switch v.kind {
	case kindMacro, kindBuiltin, kindMethod, kindLoop, kindJoiner, KindUndefined:
		return true
	default:
		return false
	}
}

func remainderTest(divisor, want int64) testFunc {
	return func(in *interp, v Value, a args) (bool, error) {
		if err := a.none("test"); err != nil {
			return false, err
		}
		r, err := in.arithmetic(opMod, v, Int(divisor))
		if err != nil {
			return false, err
		}
		return in.equal(r, Int(want))
	}
}

func testDivisible(in *interp, v Value, a args) (bool, error) {
	b, err := a.bind("divisibleby", 1, "num")
	if err != nil {
		return false, err
	}
	r, err := in.arithmetic(opMod, v, b.value[0])
	if err != nil {
		return false, err
	}
	return in.equal(r, Int(0))
}

// testSame is Python's "is" for the values where it means something.
func testSame(_ *interp, v Value, a args) (bool, error) {
	b, err := a.bind("sameas", 1, "other")
	if err != nil {
		return false, err
	}
	o := b.value[0]
	if v.kind != o.kind {
		return false, nil
	}
	switch v.kind {
	case KindNone, KindBool, KindInt, KindFloat, KindString, KindUndefined:
		return equalScalars(v, o), nil
	default:
		return v.ref == o.ref, nil
	}
}
