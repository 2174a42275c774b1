package jinja

// tokenKind is the kind of a token inside a tag, or of the tag's border.
type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenBlockBegin
	tokenBlockEnd
	tokenPrintBegin
	tokenPrintEnd
	tokenName
	tokenString
	tokenInt
	tokenFloat
	tokenOperator
)

// token is one token; text is the data, the name, the decoded string, the
// digits or the operator.
type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) is(kind tokenKind, text string) bool { return t.kind == kind && t.text == text }

func (t token) op(text string) bool { return t.is(tokenOperator, text) }

func (t token) name(text string) bool { return t.is(tokenName, text) }

// describe names t for an error message.
func (t token) describe() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenBlockEnd:
		return "end of block"
	case tokenPrintEnd:
		return "end of print"
	case tokenData, tokenBlockBegin, tokenPrintBegin:
		return "template data"
	default:
		return "'" + t.text + "'"
	}
}
