package extproc

import (
	"errors"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/warmroute/warmroute/scheduler"
)

// bodyMode is how Envoy shows the request body, and so when the pick may and
// must be sent.
type bodyMode uint8

const (
	modeUnknown  bodyMode = iota // Envoy did not say (before 1.33, other gateways)
	modeNone                     // never; the pick goes with the headers
	modeStreamed                 // after the headers were answered; the pick goes with the headers
	modeEager                    // STREAMED + send_body_without_waiting_for_header_response: one answer per chunk is owed
	modeBuffered                 // one message with all of it, once the headers were answered
	modePartial                  // as buffered, cut at Envoy's buffer limit
	modeDuplex                   // at once, and ours to hand on
)

// phase is where one HTTP request stands.
type phase uint8

const (
	receiving   phase = iota // what the pick needs is still arriving
	deciding                 // it is there: answer is due
	provisional              // the headers of a request in unknown mode left with a pick; a whole body may improve it
	flowing                  // the pick is out, the body still passes through us
	responding               // Envoy has turned to the response
	observing                // Envoy wants no answers at all
	done                     // nothing is left to say
)

// errOrder reports messages that no Envoy sends in this order.
var errOrder = errors.New("extproc: message out of order")

// stream is the conversation with Envoy about one HTTP request. It does no I/O
// and keeps no clock:
//
//	replies, err := st.step(message)   // what is owed at once
//	if st.phase == deciding {
//		replies = st.answer(&decision, err)
//	}
//
// Invariants: (1) outside FULL_DUPLEX_STREAMED each message has at most one
// answer, none before its message; (2) in FULL_DUPLEX_STREAMED the body goes
// out byte by byte as it came, with the end mark it came with; (3) a pick is
// sent at most once, except that a provisional one may be improved; (4) after
// done nothing is sent.
type stream struct {
	debug   bool // send the decision header
	maxBody int  // bytes kept for tokenization

	phase        phase
	opened       bool // the first message was seen
	mode         bodyMode
	duplexAnswer bool // the response body is ours to hand on

	req         request
	headersSeen bool
	chunks      [][]byte // the body as far as it came, not yet handed on
	size        int      // bytes in chunks
	cut         bool     // the body continues unseen
	ended       bool     // the request is complete

	headersOwed  bool // the headers have no answer yet
	bodiesOwed   int  // body messages without an answer
	trailersOwed bool // the trailers have no answer yet

	out []*reply // reused for what step and answer return
}

// step takes the next message from Envoy and returns what it must be answered
// at once. The replies are valid until the next call.
func (st *stream) step(msg *extprocv3.ProcessingRequest) ([]*reply, error) {
	st.out = st.out[:0]
	if !st.opened {
		st.open(msg)
	}
	switch st.phase {
	case observing, done:
		return nil, nil
	case deciding:
		return nil, errOrder
	default:
	}
	st.req.readSubset(msg.GetMetadataContext())
	var err error
	switch part := msg.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		err = st.requestHeaders(part.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		st.requestBody(part.RequestBody.GetBody(), part.RequestBody.GetEndOfStream())
	case *extprocv3.ProcessingRequest_RequestTrailers:
		st.requestTrailers()
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		st.respond(responseHeadersReply())
	case *extprocv3.ProcessingRequest_ResponseBody:
		st.responseBody(part.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		st.respond(responseTrailersReply())
	default:
		err = errOrder
	}
	return st.out, err
}

// open reads what only the first message carries.
func (st *stream) open(msg *extprocv3.ProcessingRequest) {
	st.opened = true
	if msg.GetObservabilityMode() {
		st.phase = observing // it has no protocol_config; answers would be spurious
		return
	}
	config := msg.GetProtocolConfig()
	if config == nil {
		return // absent is unknown; present and empty is NONE
	}
	st.duplexAnswer = config.GetResponseBodyMode() == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	switch config.GetRequestBodyMode() {
	case filterv3.ProcessingMode_NONE:
		st.mode = modeNone
	case filterv3.ProcessingMode_BUFFERED:
		st.mode = modeBuffered
	case filterv3.ProcessingMode_BUFFERED_PARTIAL:
		st.mode = modePartial
	case filterv3.ProcessingMode_FULL_DUPLEX_STREAMED:
		st.mode = modeDuplex
	default:
		st.mode = modeStreamed
		if config.GetSendBodyWithoutWaitingForHeaderResponse() {
			st.mode = modeEager
		}
	}
}

// requestHeaders takes the request headers.
func (st *stream) requestHeaders(h *extprocv3.HttpHeaders) error {
	if st.phase != receiving || st.headersSeen || st.bodiesOwed > 0 || len(st.chunks) > 0 {
		return errOrder
	}
	st.headersSeen = true
	st.headersOwed = true
	st.req.readHeaders(h)
	switch {
	case h.GetEndOfStream():
		st.end()
	case st.mode == modeNone, st.mode == modeStreamed:
		st.giveUp(untokenizedBodyUnseen)
	case st.req.opaque() && st.mode != modeUnknown:
		st.req.readBody(nil, true) // no body could help: do not hold it
		st.phase = deciding
	case st.mode == modeBuffered, st.mode == modePartial:
		// Envoy begins to buffer after this answer. Forged headers go now:
		// should we be gone before the body comes, they would stand.
		st.headersOwed = false
		st.out = append(st.out, headersReply(strip(st.req.forged)))
	default:
	}
	return nil
}

// requestBody takes a piece of the request body.
func (st *stream) requestBody(chunk []byte, last bool) {
	switch st.phase {
	case receiving:
		if st.mode == modeUnknown && st.headersOwed {
			st.mode = modeDuplex // nobody else sends a body before the headers are answered
		}
		st.bodiesOwed++
		st.chunks = append(st.chunks, chunk)
		st.size += len(chunk)
		switch {
		case last:
			st.end()
		case st.mode == modeDuplex || st.mode == modeEager:
			if st.size > st.maxBody {
				st.giveUp(untokenizedTooLarge)
			}
		case st.mode == modeNone || st.mode == modeStreamed:
			st.giveUp(untokenizedBodyUnseen) // the headers were not ours to answer, and have left
		default:
			// The whole body although the end is not marked when trailers
			// follow, or its beginning at Envoy's buffer limit.
			st.cut = true
			st.end()
		}
	case provisional:
		st.bodiesOwed++
		if !last || len(chunk) == 0 {
			st.phase = flowing
			st.flow(chunk, last)
			return
		}
		st.chunks = append(st.chunks, chunk)
		st.size += len(chunk)
		st.req.untokenized = ""
		st.end()
	case flowing:
		st.bodiesOwed++
		st.flow(chunk, last)
	case responding:
		if st.mode != modeDuplex {
			st.out = append(st.out, bodyReply(nil))
		}
	default:
	}
}

// requestTrailers takes the request trailers, which end the request.
func (st *stream) requestTrailers() {
	st.trailersOwed = true
	switch st.phase {
	case receiving:
		st.end()
	case responding:
		st.out = append(st.out, trailersReply())
	default:
		st.settle()
		st.phase = done
	}
}

// end notes that the request is complete.
func (st *stream) end() {
	st.ended = true
	switch {
	case st.size == 0:
		st.req.bodyless = true
	case st.mode == modeNone, st.mode == modeStreamed:
		st.req.untokenized = untokenizedBodyUnseen
	case st.size > st.maxBody:
		st.giveUp(untokenizedTooLarge)
	default:
		st.req.readBody(st.body(), st.cut)
	}
	st.phase = deciding
}

// giveUp makes the answer due although there will be no tokens. The model may
// have come already.
func (st *stream) giveUp(reason string) {
	if st.phase == receiving && st.size > 0 {
		body := st.body()
		st.req.readBody(body[:min(len(body), st.maxBody)], true)
	}
	st.req.untokenized = reason
	st.phase = deciding
}

// body returns the body that came so far, in one piece.
func (st *stream) body() []byte {
	var whole []byte
	for _, chunk := range st.chunks {
		switch {
		case len(whole) == 0:
			whole = chunk
		case len(chunk) > 0:
			joined := make([]byte, 0, st.size)
			for _, c := range st.chunks {
				joined = append(joined, c...)
			}
			return joined
		}
	}
	return whole
}

// waiting reports that Envoy waits for an answer while we wait for more of the request.
func (st *stream) waiting() bool {
	return st.phase == receiving && (st.headersOwed || st.bodiesOwed > 0)
}

// answer ends the deciding phase: it sends the decision, or the error in its
// place. The replies are valid until the next call.
func (st *stream) answer(d *scheduler.Decision, err error) []*reply {
	st.out = st.out[:0]
	if err != nil {
		st.phase = done
		st.out = append(st.out, immediate(err))
		return st.out
	}
	forged := st.req.forged
	if !st.headersSeen {
		forged = allOwnHeaders()
	}
	endpoint := d.Endpoint.String() // EPP protocol: header and metadata must agree
	switch {
	case st.headersOwed:
		st.headersOwed = false
		st.out = append(st.out, headersReply(pickMutation(d, endpoint, forged, st.debug)))
	case st.bodiesOwed > 0 && st.mode != modeDuplex:
		// Envoy holds the headers until this answer.
		st.bodiesOwed--
		st.out = append(st.out, bodyReply(pickMutation(d, endpoint, forged, st.debug)))
	default:
		// Headers were never ours to answer: the metadata has to do.
	}
	st.settle()
	if len(st.out) > 0 {
		st.out[0].DynamicMetadata = pickMetadata(endpoint)
	}
	switch {
	case st.ended:
		st.phase = done
	case st.mode == modeUnknown:
		st.phase = provisional
	case st.mode == modeNone, st.mode == modeBuffered, st.mode == modePartial:
		st.phase = done // the body passes without us, and need not be buffered
	default:
		// To leave in the middle of a body loses it in duplex, and makes Envoy
		// 1.40 send a part of it twice in STREAMED.
		st.phase = flowing
	}
	return st.out
}

// stay keeps a stream alive that could have ended, because it may not end at
// once: Envoy may have turned to the response by then, and to leave in the
// middle of a duplex response loses it.
func (st *stream) stay() {
	if st.phase == done && st.duplexAnswer {
		st.phase = responding
	}
}

// flow passes a piece of body on after the pick is out.
func (st *stream) flow(chunk []byte, last bool) {
	st.chunks = append(st.chunks, chunk)
	st.ended = last
	st.settle()
	if last {
		st.phase = done
	}
}

// settle answers everything that is still owed, in the order Envoy wants it.
func (st *stream) settle() {
	if st.mode == modeDuplex {
		final := len(st.chunks) - 1
		for final > 0 && len(st.chunks[final]) == 0 {
			final-- // the end mark came by itself
		}
		for i := range final + 1 {
			last := i == final && st.ended && !st.trailersOwed
			st.out = appendEchoes(st.out, st.chunks[i], last, bodyReply)
		}
	} else {
		for range st.bodiesOwed {
			st.out = append(st.out, bodyReply(nil))
		}
	}
	st.chunks, st.bodiesOwed = nil, 0
	if st.trailersOwed {
		st.trailersOwed = false
		st.out = append(st.out, trailersReply())
	}
}

// respond answers a message of the response phase, which changes nothing.
func (st *stream) respond(r *reply) {
	st.phase = responding
	st.headersOwed, st.bodiesOwed, st.trailersOwed, st.chunks = false, 0, false, nil
	st.out = append(st.out, r)
}

// responseBody answers a piece of the response body.
func (st *stream) responseBody(b *extprocv3.HttpBody) {
	st.respond(responseBodyReply(nil))
	if st.duplexAnswer {
		st.out = appendEchoes(st.out[:0], b.GetBody(), b.GetEndOfStream(), responseBodyReply)
	}
}
