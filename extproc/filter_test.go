package extproc

import (
	"bytes"
	"errors"
	"fmt"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// filter is a naive twin of Envoy's side: it knows which answers are due and
// calls every other one spurious, as Envoy does, which then fails the request.
type filter struct {
	mode       filterv3.ProcessingMode_BodySendMode
	respMode   filterv3.ProcessingMode_BodySendMode
	known      bool // the mode was in protocol_config
	observing  bool
	opened     bool
	immediate  bool
	due        []string // parts without an answer, in order; outside duplex only
	headersDue bool     // duplex: the headers have no answer yet
	bodyIn     []byte
	bodyOut    []byte
	endIn      bool // the body has carried the end mark, in
	endOut     bool
	trailersIn bool
	respIn     []byte
	respOut    []byte
	picks      int
	complete   bool // the request has ended, whatever ended it
	responding bool
}

// sends notes a message of Envoy's.
func (f *filter) sends(msg *extprocv3.ProcessingRequest) {
	if !f.opened {
		f.opened = true
		f.observing = msg.GetObservabilityMode()
		f.known = msg.GetProtocolConfig() != nil
		f.mode = msg.GetProtocolConfig().GetRequestBodyMode()
		f.respMode = msg.GetProtocolConfig().GetResponseBodyMode()
	}
	part := "none"
	switch r := msg.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		part = "request headers"
		f.headersDue = true
		f.complete = r.RequestHeaders.GetEndOfStream()
	case *extprocv3.ProcessingRequest_RequestBody:
		part = "request body"
		f.bodyIn = append(f.bodyIn, r.RequestBody.GetBody()...)
		f.endIn = f.endIn || r.RequestBody.GetEndOfStream()
		f.complete = f.complete || f.endIn || f.mode == filterv3.ProcessingMode_BUFFERED || f.mode == filterv3.ProcessingMode_BUFFERED_PARTIAL
	case *extprocv3.ProcessingRequest_RequestTrailers:
		part = "request trailers"
		f.trailersIn, f.complete = true, true
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		part = "response headers"
		f.responding = true
	case *extprocv3.ProcessingRequest_ResponseBody:
		part = "response body"
		f.responding = true
		f.respIn = append(f.respIn, r.ResponseBody.GetBody()...)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		part = "response trailers"
		f.responding = true
	}
	f.due = append(f.due, part)
}

// receives judges an answer of ours.
func (f *filter) receives(r *extprocv3.ProcessingResponse) error {
	if f.observing {
		return fmt.Errorf("an answer in observability mode: %v", r)
	}
	if f.immediate {
		return fmt.Errorf("an answer after the immediate response: %v", r)
	}
	var mutation *extprocv3.HeaderMutation
	part := ""
	switch a := r.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		f.immediate = true
		return nil
	case *extprocv3.ProcessingResponse_RequestHeaders:
		part, mutation = "request headers", a.RequestHeaders.GetResponse().GetHeaderMutation()
		if a.RequestHeaders.GetResponse().GetBodyMutation() != nil {
			return errors.New("a body mutation in the answer to headers")
		}
	case *extprocv3.ProcessingResponse_RequestBody:
		part, mutation = "request body", a.RequestBody.GetResponse().GetHeaderMutation()
		if done, err := f.requestBody(a.RequestBody.GetResponse().GetBodyMutation()); done || err != nil {
			f.pick(mutation, r)
			return err
		}
	case *extprocv3.ProcessingResponse_RequestTrailers:
		part = "request trailers"
		if f.mode == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED && len(f.bodyOut) < len(f.bodyIn) {
			return errors.New("trailers answered before the body was handed on")
		}
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		part = "response headers"
	case *extprocv3.ProcessingResponse_ResponseBody:
		part = "response body"
		streamed := a.ResponseBody.GetResponse().GetBodyMutation().GetStreamedResponse()
		if (streamed != nil) != (f.respMode == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED) {
			return fmt.Errorf("response body answered in the wrong form for %v", f.respMode)
		}
		if streamed != nil {
			f.respOut = append(f.respOut, streamed.GetBody()...)
			if !bytes.HasPrefix(f.respIn, f.respOut) {
				return errors.New("the response body was changed")
			}
			return nil
		}
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		part = "response trailers"
	}
	f.pick(mutation, r)
	return f.settle(part)
}

// requestBody judges the answer to a piece of body; done says that nothing more is to be judged.
func (f *filter) requestBody(m *extprocv3.BodyMutation) (done bool, err error) {
	streamed := m.GetStreamedResponse()
	if f.mode != filterv3.ProcessingMode_FULL_DUPLEX_STREAMED {
		if f.known && m != nil {
			return true, fmt.Errorf("a body mutation in %v", f.mode)
		}
		if streamed == nil {
			return false, nil
		}
	}
	switch {
	case streamed == nil:
		return true, errors.New("a plain body answer in duplex")
	case f.headersDue:
		return true, errors.New("body handed on before the headers were answered")
	case f.endOut:
		return true, errors.New("body handed on after its end")
	case len(streamed.GetBody()) > maxPiece:
		return true, fmt.Errorf("a piece of %d bytes", len(streamed.GetBody()))
	}
	f.bodyOut = append(f.bodyOut, streamed.GetBody()...)
	f.endOut = streamed.GetEndOfStream()
	if !bytes.HasPrefix(f.bodyIn, f.bodyOut) {
		return true, errors.New("the body was changed")
	}
	if f.endOut && (!f.endIn || len(f.bodyOut) != len(f.bodyIn)) {
		return true, errors.New("an end mark of our own")
	}
	return true, nil
}

// settle takes the answered part off the list of what is due.
func (f *filter) settle(part string) error {
	if part == "request headers" {
		f.headersDue = false
	}
	for i, due := range f.due {
		if due == part {
			f.due = append(f.due[:i], f.due[i+1:]...)
			return nil
		}
		// Only pieces whose answers come in no fixed order may be overtaken.
		if f.mode != filterv3.ProcessingMode_FULL_DUPLEX_STREAMED && f.known && !f.responding {
			return fmt.Errorf("%s answered before %s", part, due)
		}
	}
	return fmt.Errorf("%s answered without being due (spurious)", part)
}

// pick counts the destinations named.
func (f *filter) pick(m *extprocv3.HeaderMutation, r *extprocv3.ProcessingResponse) {
	named := r.GetDynamicMetadata() != nil
	for _, h := range m.GetSetHeaders() {
		named = named || h.GetHeader().GetKey() == destinationHeader
	}
	if named {
		f.picks++
	}
}

// ends judges our ending the stream with OK.
func (f *filter) ends() error {
	switch {
	case f.immediate:
		return nil
	case f.mode == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED && (len(f.bodyOut) != len(f.bodyIn) || f.endOut != f.endIn):
		return fmt.Errorf("left with %d of %d bytes handed on, end mark in %t, out %t", len(f.bodyOut), len(f.bodyIn), f.endIn, f.endOut)
	case f.known && f.mode != filterv3.ProcessingMode_NONE && !f.complete:
		return errors.New("left in the middle of the request")
	case f.picks == 0:
		return errors.New("left without a pick")
	}
	return nil
}
