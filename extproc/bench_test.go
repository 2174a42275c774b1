package extproc

import (
	"errors"
	"fmt"
	"io"
	"testing"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

func noopMeter() metric.Meter { return noop.Meter{} }

var (
	benchSizes = []int{2 << 10, 32 << 10, 400 << 10}
	benchModes = []filterv3.ProcessingMode_BodySendMode{filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_FULL_DUPLEX_STREAMED}
)

// BenchmarkStream is one request through the state machine, without gRPC and
// with a tokenizer and picker that cost nothing: what this package adds.
func BenchmarkStream(b *testing.B) {
	for _, mode := range benchModes {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("mode=%v/bytes=%d", mode, size), func(b *testing.B) {
				server := NewServer(Config{Picker: staticPicker{}, Tokenizer: &countingTokenizer{}})
				conn := &discardConn{ctx: b.Context()}
				headers, body := chatHeaders(mode), bodyMessage(chatBody(size), true)
				b.ReportAllocs()
				for b.Loop() {
					x := server.exchange(conn)
					for _, msg := range []*extprocv3.ProcessingRequest{headers, body} {
						if _, err := x.handle(msg); err != nil {
							b.Fatal(err)
						}
					}
					x.close(nil)
				}
			})
		}
	}
}

// BenchmarkProcess is one request over gRPC in the same process, beside a
// server that does nothing but answer in the right form.
func BenchmarkProcess(b *testing.B) {
	for _, mode := range benchModes {
		for _, size := range benchSizes {
			for _, server := range []struct {
				name    string
				service extprocv3.ExternalProcessorServer
			}{
				{"nothing", doNothing{}},
				{"warmroute", NewServer(Config{Picker: staticPicker{}, Tokenizer: &countingTokenizer{}})},
			} {
				b.Run(fmt.Sprintf("mode=%v/bytes=%d/server=%s", mode, size, server.name), func(b *testing.B) {
					client := serve(b, server.service)
					headers, body := chatHeaders(mode), bodyMessage(chatBody(size), true)
					b.ReportAllocs()
					for b.Loop() {
						if _, err := answers(b, open(b, client, headers, body)); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// doNothing is the least an ext_proc server can do.
type doNothing struct{}

func (doNothing) Process(conn extprocv3.ExternalProcessor_ProcessServer) error {
	duplex := false
	for {
		msg, err := conn.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch part := msg.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			duplex = msg.GetProtocolConfig().GetRequestBodyMode() == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
			if err := conn.Send(headersReply(nil)); err != nil {
				return err
			}
		case *extprocv3.ProcessingRequest_RequestBody:
			replies := []*reply{bodyReply(nil)}
			if duplex {
				replies = appendEchoes(nil, part.RequestBody.GetBody(), part.RequestBody.GetEndOfStream(), bodyReply)
			}
			for _, r := range replies {
				if err := conn.Send(r); err != nil {
					return err
				}
			}
			if part.RequestBody.GetEndOfStream() {
				return nil
			}
		}
	}
}
