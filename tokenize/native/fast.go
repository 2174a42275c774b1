package native

/*
#cgo LDFLAGS: -ltokenizers -lm -ldl
#cgo noescape warmroute_fast_encode
#cgo nocallback warmroute_fast_encode
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef struct warmroute_fast warmroute_fast;
int warmroute_fast_load(const uint8_t *json, size_t len, warmroute_fast **out, uint8_t *err, size_t *err_len);
void warmroute_fast_free(warmroute_fast *);
int warmroute_fast_encode(const warmroute_fast *, const uint8_t *text, size_t len, bool special, uint32_t *ids, size_t *n);
*/
import "C"

import (
	"errors"
	"slices"
	"unsafe"
)

// fast is the fast engine with one tokenizer.json. It does not guard itself:
// nothing may run when it is freed.
type fast struct{ handle *C.warmroute_fast }

// The statuses of rust/src/fast_engine.rs.
const (
	statusOK      = 0
	statusShort   = 1
	statusDiffers = 2
	statusPanic   = -2
)

var errPanic = errors.New("the fast engine panicked")

func loadFast(data []byte) (*fast, error) {
	var f fast
	message := make([]byte, 512)
	n := C.size_t(len(message))
	switch C.warmroute_fast_load(bytesOf(unsafe.SliceData(data)), C.size_t(len(data)), &f.handle, bytesOf(unsafe.SliceData(message)), &n) {
	case statusOK:
		return &f, nil
	case statusPanic:
		return nil, errPanic
	default:
		return nil, errors.New(string(message[:n]))
	}
}

func bytesOf(p *byte) *C.uint8_t { return (*C.uint8_t)(unsafe.Pointer(p)) }

func (f *fast) free() { C.warmroute_fast_free(f.handle) }

// append appends the ids of text, which must be valid UTF-8. Not ok means that
// the engine is not sure of them; dst is then returned as it came.
func (f *fast) append(dst []uint32, text string, special bool) (ids []uint32, ok bool) {
	if text == "" && !special {
		return dst, true
	}
	// English has 4 to 5 bytes a token.
	dst = slices.Grow(dst, len(text)/3+8)
	for {
		room := dst[len(dst):cap(dst)]
		n := C.size_t(len(room))
		data := unsafe.StringData(text)
		if text == "" {
			data = new(byte) // an empty text still has an address
		}
		switch C.warmroute_fast_encode(f.handle, bytesOf(data), C.size_t(len(text)), C.bool(special),
			(*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(room))), &n) {
		case statusOK:
			return dst[:len(dst)+int(n)], true
		case statusShort:
			dst = slices.Grow(dst, int(n))
		default:
			return dst, false
		}
	}
}
