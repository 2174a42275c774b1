package extproc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// serve runs a service over an in-process connection and returns a client.
func serve(tb testing.TB, service extprocv3.ExternalProcessorServer) extprocv3.ExternalProcessorClient {
	tb.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	extprocv3.RegisterExternalProcessorServer(server, service)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		server.Stop()
		if err := <-stopped; err != nil {
			tb.Error(err)
		}
	})
	return extprocv3.NewExternalProcessorClient(conn)
}

type clientStream = grpc.BidiStreamingClient[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]

// open starts a stream and sends the messages.
func open(tb testing.TB, client extprocv3.ExternalProcessorClient, messages ...*extprocv3.ProcessingRequest) clientStream {
	tb.Helper()
	stream, err := client.Process(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, msg := range messages {
		if err := stream.Send(msg); err != nil {
			tb.Fatal(err)
		}
	}
	return stream
}

// answers reads until the stream ends.
func answers(tb testing.TB, stream clientStream) (replies []*extprocv3.ProcessingResponse, end error) {
	tb.Helper()
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return replies, nil
		}
		if err != nil {
			return replies, err
		}
		replies = append(replies, r)
	}
}

// chatHeaders are the headers of a chat request in a body mode.
func chatHeaders(mode filterv3.ProcessingMode_BodySendMode) *extprocv3.ProcessingRequest {
	pairs := [][2]string{
		{":authority", "gw"},
		{":path", "/v1/chat/completions"},
		{":method", "POST"},
		{":scheme", "http"},
		{"user-agent", "curl/7.88.1"},
		{"accept", "*/*"},
		{"content-type", "application/json"},
		{"x-forwarded-proto", "http"},
		{"x-request-id", "00000000-0000-4000-8000-000000000000"},
	}
	headers := make([]*corev3.HeaderValue, 0, len(pairs))
	for _, p := range pairs {
		headers = append(headers, &corev3.HeaderValue{Key: p[0], RawValue: []byte(p[1])})
	}
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: &corev3.HeaderMap{Headers: headers},
		}},
		MetadataContext: &corev3.Metadata{},
		ProtocolConfig:  &extprocv3.ProtocolConfiguration{RequestBodyMode: mode},
	}
}

// bodyMessage is a piece of request body.
func bodyMessage(body []byte, last bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{
		Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: last}},
	}
}

// destination returns the endpoint the answers name, by header.
func destination(replies []*extprocv3.ProcessingResponse) string {
	for _, r := range replies {
		headers := r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
		headers = append(headers, r.GetRequestBody().GetResponse().GetHeaderMutation().GetSetHeaders()...)
		for _, h := range headers {
			if h.GetHeader().GetKey() == destinationHeader {
				return string(h.GetHeader().GetRawValue())
			}
		}
	}
	return ""
}

func TestProcessOverGRPC(t *testing.T) {
	for _, mode := range []filterv3.ProcessingMode_BodySendMode{filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_FULL_DUPLEX_STREAMED} {
		t.Run(mode.String(), func(t *testing.T) {
			picker := &fakePicker{decision: testDecision}
			server := NewServer(Config{Picker: picker, Tokenizer: fakeTokenizer{}, Deadline: time.Hour})
			client := serve(t, server)
			replies, err := answers(t, open(t, client, chatHeaders(mode), bodyMessage(chatBody(5<<20), true)))
			if err != nil {
				t.Fatal(err)
			}
			if got := destination(replies); got != "127.0.0.1:8001" {
				t.Errorf("got destination %q", got)
			}
			if got := len(picker.asked[0].Tokens); got != 5<<20 {
				t.Errorf("picked with %d tokens, want %d", got, 5<<20)
			}
			want := Stats{
				Requests: map[string]uint64{"routed": 1, "rejected": 0, "failed": 0, "aborted": 0, "observed": 0, "passed": 0},
				Tokenize: map[TokenizeLabels]uint64{{"m1", "ok"}: 1},
			}
			if diff := cmp.Diff(want, settled(t, server)); diff != "" {
				t.Errorf("stats differ (-want +got):\n%s", diff)
			}
		})
	}
}

// settled returns the counters once no stream is open: a client sees the end
// of its stream a moment before the server is through with it.
func settled(t *testing.T, s *Server) Stats {
	t.Helper()
	for {
		if stats := s.Stats(); stats.Streams == 0 {
			return stats
		}
		select {
		case <-t.Context().Done():
			t.Fatal("streams stay open")
		case <-time.After(time.Millisecond):
		}
	}
}

// blockingTokenizer waits until it is released.
type blockingTokenizer struct{ release chan struct{} }

func (b blockingTokenizer) Append(_ context.Context, dst []uint32, _ string, _ *tokenize.Prompt) ([]uint32, error) {
	<-b.release
	return append(dst, 1), nil
}

// waitingTokenizer waits for its turn, which never comes.
type waitingTokenizer struct{ gaveUp chan struct{} }

func (w waitingTokenizer) Append(ctx context.Context, dst []uint32, _ string, _ *tokenize.Prompt) ([]uint32, error) {
	<-ctx.Done()
	w.gaveUp <- struct{}{}
	return dst, &tokenize.Error{Reason: "abandoned", Err: ctx.Err()}
}

// TestNobodyTokenizesInVain has the tokenizer told when the pick was made
// without it, and when the client is gone. Else a burst of long prompts would
// be worked off to its end, and all that comes meanwhile would be late too.
func TestNobodyTokenizesInVain(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"the deadline passes": time.Millisecond, "the client leaves": time.Hour} {
		t.Run(name, func(t *testing.T) {
			picker := &fakePicker{decision: testDecision}
			tokenizer := waitingTokenizer{make(chan struct{})}
			server := NewServer(Config{Picker: picker, Tokenizer: tokenizer, Deadline: deadline})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := serve(t, server).Process(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, msg := range []*extprocv3.ProcessingRequest{chatHeaders(filterv3.ProcessingMode_BUFFERED), bodyMessage(chatBody(200), true)} {
				if err := stream.Send(msg); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := stream.Recv(); err != nil { // the answer to the headers
				t.Fatal(err)
			}
			if deadline == time.Hour {
				cancel()
			}
			<-tokenizer.gaveUp // or the test hangs
		})
	}
}

func TestDeadlineAnswersWhileTokensAreMade(t *testing.T) {
	for _, mode := range []filterv3.ProcessingMode_BodySendMode{filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_FULL_DUPLEX_STREAMED} {
		t.Run(mode.String(), func(t *testing.T) {
			picker := &fakePicker{decision: testDecision}
			tokenizer := blockingTokenizer{make(chan struct{})}
			server := NewServer(Config{Picker: picker, Tokenizer: tokenizer, Deadline: time.Millisecond})
			client := serve(t, server)
			stream := open(t, client, chatHeaders(mode), bodyMessage(chatBody(200), true))
			var replies []*extprocv3.ProcessingResponse
			for destination(replies) == "" {
				r, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				replies = append(replies, r)
			}
			close(tokenizer.release) // only now
			if _, err := answers(t, stream); err != nil {
				t.Fatal(err)
			}
			stats := settled(t, server)
			if stats.Deadlines != 1 || stats.Untokenized["deadline"] != 1 || stats.Requests["routed"] != 1 {
				t.Errorf("got %+v, want one routed request that met its deadline", stats)
			}
			if got := picker.asked; len(got) != 1 || got[0].Untokenized != "deadline" || got[0].Model != "m1" {
				t.Errorf("picked %+v, want once, on load, with the model", got)
			}
		})
	}
}

func TestDeadlineAnswersAStalledUpload(t *testing.T) {
	server := NewServer(Config{Picker: &fakePicker{decision: testDecision}, Tokenizer: fakeTokenizer{}, Deadline: time.Millisecond})
	client := serve(t, server)
	body := chatBody(200)
	stream := open(t, client, chatHeaders(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED), bodyMessage(body[:50], false))
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if destination([]*extprocv3.ProcessingResponse{first}) == "" {
		t.Fatalf("got %v, want the pick", first)
	}
	if err := stream.Send(bodyMessage(body[50:], true)); err != nil {
		t.Fatal(err)
	}
	replies, err := answers(t, stream)
	if err != nil {
		t.Fatal(err)
	}
	var echoed []byte
	for _, r := range replies {
		echoed = append(echoed, r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody()...)
	}
	if string(echoed) != string(body) {
		t.Errorf("handed on %q, want %q", echoed, body)
	}
}

// panickingTokenizer has a defect.
type panickingTokenizer struct{}

func (panickingTokenizer) Append(context.Context, []uint32, string, *tokenize.Prompt) ([]uint32, error) {
	panic("defect")
}

// panickingPicker has a defect.
type panickingPicker struct{}

func (panickingPicker) Pick(context.Context, *scheduler.Request) (scheduler.Decision, error) {
	panic("defect")
}

func TestPanicsCostAtMostOneStream(t *testing.T) {
	t.Run("in the tokenizer it costs the tokens", func(t *testing.T) {
		server := NewServer(Config{Picker: &fakePicker{decision: testDecision}, Tokenizer: panickingTokenizer{}, Deadline: time.Hour})
		client := serve(t, server)
		replies, err := answers(t, open(t, client, chatHeaders(filterv3.ProcessingMode_BUFFERED), bodyMessage(chatBody(200), true)))
		if err != nil || destination(replies) == "" {
			t.Fatalf("got %v, %v, want a pick", replies, err)
		}
		if stats := settled(t, server); stats.Panics != 1 || stats.Untokenized["tokenizer_panic"] != 1 {
			t.Errorf("got %+v", stats)
		}
	})
	t.Run("in the picker it costs the stream", func(t *testing.T) {
		server := NewServer(Config{Picker: panickingPicker{}})
		client := serve(t, server)
		for range 2 {
			_, err := answers(t, open(t, client, chatHeaders(filterv3.ProcessingMode_NONE)))
			if status.Code(err) != codes.Internal {
				t.Fatalf("got %v, want Internal", err)
			}
		}
		if stats := settled(t, server); stats.Panics != 2 || stats.Requests["failed"] != 2 {
			t.Errorf("got %+v", stats)
		}
	})
	t.Run("at the deadline it costs the stream", func(t *testing.T) {
		server := NewServer(Config{Picker: panickingPicker{}, Deadline: time.Millisecond})
		client := serve(t, server)
		stream := open(t, client, chatHeaders(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED), bodyMessage(chatBody(200)[:50], false))
		for server.Stats().Panics == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := answers(t, stream); status.Code(err) != codes.Internal {
			t.Fatalf("got %v, want Internal", err)
		}
	})
}

func TestClientGoneBeforeThePick(t *testing.T) {
	picker := &fakePicker{decision: testDecision}
	server := NewServer(Config{Picker: picker, Tokenizer: fakeTokenizer{}, Deadline: time.Hour})
	client := serve(t, server)
	stream := open(t, client, chatHeaders(filterv3.ProcessingMode_BUFFERED))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := answers(t, stream); err != nil {
		t.Fatal(err)
	}
	if stats := settled(t, server); stats.Requests["aborted"] != 1 || len(picker.asked) != 0 {
		t.Errorf("got %+v and %d picks, want one aborted request and none", stats, len(picker.asked))
	}
}

func TestModelLabelsAreBounded(t *testing.T) {
	m := newMetrics(noopMeter(), slog.New(slog.DiscardHandler))
	m.tokenized(t.Context(), "served", "", 0)
	m.tokenized(t.Context(), "served", "multimodal", 0)
	m.tokenized(t.Context(), "invented by a client", "unknown_model", 0)
	want := map[TokenizeLabels]uint64{{"served", "ok"}: 1, {"served", "multimodal"}: 1, {"other", "unknown_model"}: 1}
	if diff := cmp.Diff(want, m.tokenize.snapshot()); diff != "" {
		t.Errorf("labels differ (-want +got):\n%s", diff)
	}
	var c counters[int]
	for i := range 10 * maxLabels {
		c.add(i)
	}
	if got := len(c.snapshot()); got > maxLabels+1 {
		t.Errorf("%d labels, want at most %d", got, maxLabels+1)
	}
}

func TestHistograms(t *testing.T) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	server := NewServer(Config{Picker: &fakePicker{decision: testDecision}, Tokenizer: fakeTokenizer{}, Deadline: time.Hour, Meter: provider.Meter("test")})
	client := serve(t, server)
	if _, err := answers(t, open(t, client, chatHeaders(filterv3.ProcessingMode_BUFFERED), bodyMessage(chatBody(200), true))); err != nil {
		t.Fatal(err)
	}
	settled(t, server)
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			for _, point := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				stage, _ := point.Attributes.Value("stage")
				got[m.Name+" "+stage.AsString()] += point.Count
			}
		}
	}
	want := map[string]uint64{
		"warmroute_pick_duration_seconds ":          1,
		"warmroute_stage_duration_seconds parse":    1,
		"warmroute_stage_duration_seconds tokenize": 1,
		"warmroute_stage_duration_seconds pick":     1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measurements differ (-want +got):\n%s", diff)
	}
}

// countingTokenizer makes tokens without allocating and counts its calls.
type countingTokenizer struct{ calls atomic.Int64 }

func (c *countingTokenizer) Append(_ context.Context, dst []uint32, _ string, p *tokenize.Prompt) ([]uint32, error) {
	c.calls.Add(1)
	for i := 0; i < len(p.Body); i += 4 {
		dst = append(dst, uint32(i))
	}
	return dst, nil
}

// staticPicker always picks the same endpoint.
type staticPicker struct{}

func (staticPicker) Pick(context.Context, *scheduler.Request) (scheduler.Decision, error) {
	return testDecision, nil
}

// discardConn takes answers and forgets them.
type discardConn struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (c *discardConn) Context() context.Context                    { return c.ctx }
func (c *discardConn) Recv() (*extprocv3.ProcessingRequest, error) { return nil, io.EOF }
func (c *discardConn) Send(*extprocv3.ProcessingResponse) error    { c.n++; return nil }
func (s *Server) exchange(c *discardConn) *exchange {
	return &exchange{s: s, conn: c, st: stream{maxBody: s.cfg.MaxBody}}
}

// TestAllocations keeps the work per request independent of the body's size,
// with logging off and metrics on.
func TestAllocations(t *testing.T) {
	server := NewServer(Config{
		Picker: staticPicker{}, Tokenizer: &countingTokenizer{},
		Meter: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())).Meter("test"),
	})
	conn := &discardConn{ctx: t.Context()}
	for _, size := range []int{2 << 10, 400 << 10} {
		for mode, limit := range map[filterv3.ProcessingMode_BodySendMode]float64{
			// 36 and 41 as measured; under the race detector pools lose some.
			filterv3.ProcessingMode_BUFFERED:             42,
			filterv3.ProcessingMode_FULL_DUPLEX_STREAMED: 42 + 8*float64(size/maxPiece+1),
		} {
			headers, body := chatHeaders(mode), bodyMessage(chatBody(size), true)
			got := testing.AllocsPerRun(100, func() {
				x := server.exchange(conn)
				for _, msg := range []*extprocv3.ProcessingRequest{headers, body} {
					if _, err := x.handle(msg); err != nil {
						t.Fatal(err)
					}
				}
				x.close(nil)
			})
			if got > limit {
				t.Errorf("%v, %d bytes: %v allocations, want at most %v", mode, size, got, limit)
			}
			t.Logf("%v, %d bytes: %v allocations", mode, size, got)
		}
	}
}
