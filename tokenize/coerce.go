package tokenize

import (
	"math"
	"strconv"
	"strings"

	"github.com/warmroute/warmroute/tokenize/jinja"
)

// vLLM declares its requests with pydantic, whose lax mode reads a few values
// as others.

// laxBool reads what pydantic takes for a bool.
func laxBool(v jinja.Value) (b, ok bool) {
	switch v.Kind() {
	case jinja.KindBool:
		return v.Bool(), true
	case jinja.KindInt:
		i, fits := v.Int64()
		return i == 1, fits && (i == 0 || i == 1)
	case jinja.KindFloat:
		f, _ := v.Float64()
		return f == 1, f == 0 || f == 1
	case jinja.KindString:
		switch strings.ToLower(v.Str()) {
		case "1", "on", "t", "true", "y", "yes":
			return true, true
		case "0", "off", "f", "false", "n", "no":
			return false, true
		}
	default:
	}
	return false, false
}

// laxInt reads what pydantic takes for an int of 64 bits.
func laxInt(v jinja.Value) (i int64, ok bool) {
	switch v.Kind() {
	case jinja.KindBool:
		if v.Bool() {
			return 1, true
		}
		return 0, true
	case jinja.KindInt:
		return v.Int64()
	case jinja.KindFloat:
		f, _ := v.Float64()
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	case jinja.KindString:
		i, err := strconv.ParseInt(strings.TrimSpace(v.Str()), 10, 64)
		return i, err == nil
	default:
		return 0, false
	}
}

// truthy is Python's bool(v).
func truthy(v jinja.Value) bool {
	switch v.Kind() {
	case jinja.KindBool:
		return v.Bool()
	case jinja.KindInt:
		i, fits := v.Int64()
		return !fits || i != 0
	case jinja.KindFloat:
		f, _ := v.Float64()
		return f != 0
	case jinja.KindString:
		return v.Str() != ""
	case jinja.KindList:
		return v.List().Len() > 0
	case jinja.KindDict:
		return v.Dict().Len() > 0
	default:
		return false
	}
}

// given reports whether v was sent with a value.
func given(v jinja.Value) bool { return !v.IsUndefined() && !v.IsNone() }
