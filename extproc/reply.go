package extproc

import (
	"errors"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/warmroute/warmroute/scheduler"
)

// The headers that are ours alone. EPP protocol, Destination Endpoint: the
// destination goes out as a header and as dynamic metadata, and the two must
// agree.
const (
	destinationHeader    = "x-gateway-destination-endpoint"
	destinationNamespace = "envoy.lb"
	servedHeader         = destinationHeader + "-served"
	subsetHeader         = destinationHeader + "-subset"
	rankHeader           = "x-data-parallel-rank"
	prefillHeader        = "x-prefiller-host-port"
	decisionHeader       = "x-warmroute-decision"
)

// ownHeader reports whether only we may set the header. A client that sends
// one could steer its request, in an original_dst cluster to any address.
func ownHeader(name string) bool {
	switch name {
	case destinationHeader, servedHeader, subsetHeader, rankHeader, prefillHeader, decisionHeader:
		return true
	default:
		return false
	}
}

// allOwnHeaders is what a client may have forged when its headers are not shown to us.
func allOwnHeaders() []string {
	return []string{servedHeader, subsetHeader, rankHeader, prefillHeader, decisionHeader}
}

// maxPiece is how much body one duplex answer carries. Envoy 1.40 takes 8 MiB
// at once; other gateways stop at 64 KiB with framing.
const maxPiece = 62_000

type (
	reply  = extprocv3.ProcessingResponse
	common = extprocv3.CommonResponse
)

func headersReply(c *common) *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: c},
	}}
}

func bodyReply(c *common) *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: c},
	}}
}

func trailersReply() *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{},
	}}
}

func responseHeadersReply() *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{},
	}}
}

func responseBodyReply(c *common) *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: c},
	}}
}

func responseTrailersReply() *reply {
	return &reply{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extprocv3.TrailersResponse{},
	}}
}

// echo hands a piece of body on in a FULL_DUPLEX_STREAMED direction, where
// Envoy keeps no copy.
func echo(piece []byte, last bool) *common {
	return &common{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: piece, EndOfStream: last},
		},
	}}
}

// appendEchoes appends the answers that hand chunk on. No answer is made for
// an empty chunk unless it has to carry the end mark.
func appendEchoes(dst []*reply, chunk []byte, last bool, answer func(*common) *reply) []*reply {
	for len(chunk) > maxPiece {
		dst = append(dst, answer(echo(chunk[:maxPiece], false)))
		chunk = chunk[maxPiece:]
	}
	if len(chunk) > 0 || last {
		dst = append(dst, answer(echo(chunk, last)))
	}
	return dst
}

// strip removes the headers the client forged, and nothing when it forged none.
func strip(forged []string) *common {
	if len(forged) == 0 {
		return nil
	}
	return &common{HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: forged}}
}

// pickMutation names the endpoint to Envoy. Envoy applies removals before sets,
// so a forged header that is also set ends with our value.
func pickMutation(d *scheduler.Decision, endpoint string, forged []string, debug bool) *common {
	set := make([]*corev3.HeaderValueOption, 0, 3)
	set = append(set, setHeader(destinationHeader, endpoint))
	if d.Rank >= 0 {
		set = append(set, setHeader(rankHeader, strconv.Itoa(d.Rank)))
	}
	if debug {
		set = append(set, setHeader(decisionHeader, decisionText(d)))
	}
	return &common{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set, RemoveHeaders: forged}}
}

// setHeader replaces every value of a header. Envoy reads only raw_value
// (value alone gives an empty header) and would append by default.
func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// decisionText is the value of the decision header: <reason>;matched=<tokens>;prompt=<tokens>.
func decisionText(d *scheduler.Decision) string {
	b := make([]byte, 0, 64)
	b = append(b, d.Reason...)
	b = append(b, ";matched="...)
	b = strconv.AppendInt(b, int64(d.Matched), 10)
	b = append(b, ";prompt="...)
	b = strconv.AppendInt(b, int64(d.Prompt), 10)
	return string(b)
}

// pickMetadata names the endpoint in dynamic metadata.
func pickMetadata(endpoint string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		destinationNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			destinationHeader: structpb.NewStringValue(endpoint),
		}}),
	}}
}

// rejection is an error as the client sees it.
type rejection struct {
	status  typev3.StatusCode
	code    string // snake_case, in the body; in Envoy's response code details behind "warmroute_"
	kind    string // OpenAI's error type
	message string
}

// reject maps an error of a pick to HTTP. Nothing else in the program does.
func reject(err error) rejection {
	switch {
	case errors.Is(err, scheduler.ErrNoEndpoint):
		return rejection{typev3.StatusCode_ServiceUnavailable, "no_endpoint", "server_error", "no endpoint can serve this request"}
	default:
		return rejection{typev3.StatusCode_InternalServerError, "pick_failed", "server_error", "the endpoint picker failed"}
	}
}

// immediate answers the client in Envoy's place with an OpenAI-style error.
func immediate(err error) *reply {
	r := reject(err)
	// The texts are constants without characters JSON would escape.
	body := `{"error":{"message":"` + r.message + `","type":"` + r.kind + `","code":"` + r.code + `"}}`
	return &reply{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: r.status},
			Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
				setHeader("content-type", "application/json"),
			}},
			Body:    []byte(body),
			Details: "warmroute_" + r.code,
		},
	}}
}
