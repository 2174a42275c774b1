package jinja

// expr is an expression. Nodes are immutable once the template is parsed, and
// know how to evaluate themselves.
type expr interface {
	eval(in *interp) (Value, error)
}

// stmt is a statement. exec returns a signal other than next to leave a loop
// early.
type stmt interface {
	exec(in *interp) (signal, error)
	at() int
}

type signal uint8

const (
	next signal = iota
	breakLoop
	continueLoop
)

// pos is the line a statement starts on.
type pos int

func (p pos) at() int { return int(p) }

// variable is where a name lives: slot in the activation that is up hops
// outside the running one. The resolver fills it in.
type variable struct {
	up, slot int
}

// Expressions.
type (
	constExpr struct{ value Value }
	nameExpr  struct {
		name string
		variable
	}
	attrExpr struct {
		object  expr
		name    string
		methods *methodSet // with this name, or nil
	}
	itemExpr struct {
		object, index expr
	}
	sliceExpr struct { // only as the index of an itemExpr
		start, stop, step expr // may be nil
	}
	callExpr struct {
		callee expr
		args   argList
	}
	filterExpr struct {
		subject expr // nil in a filter block
		name    string
		filter  filterFunc // nil: unknown, an error when it runs
		args    argList
	}
	testExpr struct {
		subject expr
		name    string
		test    testFunc // nil: unknown
		args    argList
		negated bool
	}
	notExpr    struct{ operand expr }
	negateExpr struct{ operand expr }
	plusExpr   struct{ operand expr }
	andExpr    struct{ left, right expr }
	orExpr     struct{ left, right expr }
	binaryExpr struct {
		op          operator
		left, right expr
	}
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		rest  []comparison
	}
	comparison struct {
		op    operator
		right expr
	}
	condExpr struct {
		test, then, otherwise expr // otherwise may be nil
	}
	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }
	dictExpr  struct{ items []dictItem }
	dictItem  struct{ key, value expr }
)

// argList is what stands between the parentheses of a call.
type argList struct {
	positional []expr
	named      []namedArg
	star       expr // *args, may be nil
	starStar   expr // **kwargs, may be nil
}

type namedArg struct {
	name  string
	value expr
}

// operator is an arithmetic or comparison operator.
type operator uint8

const (
	opAdd operator = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opIn
	opNotIn
)

var operatorText = [...]string{"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"}

func (o operator) String() string { return operatorText[o] }

// Statements.
type (
	textStmt struct {
		pos
		text string
	}
	printStmt struct {
		pos
		value expr
	}
	ifStmt struct {
		pos
		branches  []branch
		otherwise []stmt
	}
	branch struct {
		test expr
		body []stmt
	}
	forStmt struct {
		pos
		target    target
		iterable  expr
		filter    expr // nil without "if"
		body      []stmt
		otherwise []stmt
		recursive bool
		usesLoop  bool

		loop        variable // the "loop" variable
		frame       frame    // of the body
		filterFrame frame
		filterVars  target // the targets as the filter sees them
		elseFrame   frame
	}
	setStmt struct {
		pos
		target target
		value  expr
	}
	setBlockStmt struct {
		pos
		target target
		filter expr // nil, or a chain of filterExpr whose innermost subject is nil
		body   []stmt
		frame  frame
	}
	filterBlockStmt struct {
		pos
		filter expr
		body   []stmt
		frame  frame
	}
	withStmt struct {
		pos
		targets []target
		values  []expr
		body    []stmt
		frame   frame
	}
	scopeStmt struct { // generation: prints its body in a scope of its own
		pos
		body  []stmt
		frame frame
	}
	macroStmt struct {
		pos
		name variable
		code *macroCode
	}
	callBlockStmt struct {
		pos
		call   *callExpr
		caller *macroCode
	}
	breakStmt    struct{ pos }
	continueStmt struct{ pos }
)

// macroCode is the code of a macro or of the body of a call block.
type macroCode struct {
	line     int
	name     string
	params   []param
	body     []stmt
	slots    int // size of an activation
	frame    frame
	captured bool // the body defines macros of its own, which keep the activation

	usesCaller, usesVarargs, usesKwargs bool
	caller, varargs, kwargs             variable
}

type param struct {
	name     string
	fallback expr // nil without a default
	variable
}

// target is what an assignment stores to: a name, an attribute of a namespace,
// or a tuple of targets.
type target interface {
	assign(in *interp, v Value) error
}

type (
	nameTarget struct {
		name string
		variable
	}
	attrTarget struct {
		object *nameExpr
		name   string
	}
	tupleTarget struct{ items []target }
)

// frame is a scope inside an activation: what its variables hold when it is
// entered.
type frame struct {
	inits []slotInit
	// low and high bound the slots of the frame and of those inside it.
	low, high int
}

type slotInit struct {
	slot  int
	from  variable // when known
	known bool     // false: starts undefined
}
