// Package extproc speaks Envoy's external processing protocol: one gRPC stream
// per HTTP request, on which it learns the request and names the endpoint.
//
// It reads headers and body in every body mode Envoy has, has the prompt
// tokenized and an endpoint picked, and answers with a header mutation and
// dynamic metadata. A request whose tokens cannot be made is placed by load;
// the only request turned away is one that no endpoint can serve. It never
// changes a body, never touches content-length and never sees an index.
package extproc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// Picker chooses the endpoint of a request; *scheduler.Scheduler is one.
type Picker interface {
	Pick(ctx context.Context, req *scheduler.Request) (scheduler.Decision, error)
}

// Tokenizer appends the token ids of a prompt to dst; *tokenize.Models is one.
type Tokenizer interface {
	Append(ctx context.Context, dst []uint32, model string, p *tokenize.Prompt) ([]uint32, error)
}

// Config is what a Server works with.
type Config struct {
	Picker    Picker       // required
	Tokenizer Tokenizer    // nil places every request by load
	Logger    *slog.Logger // nil discards
	Meter     metric.Meter // nil measures nothing

	// DebugHeaders adds x-warmroute-decision to the request the engine gets.
	// Off by default: it tells every engine log how prompts overlap.
	DebugHeaders bool

	// Deadline bounds how long Envoy waits for an answer it is owed: once a
	// request stands still that long, or its tokens take that long, a pick on
	// load alone is sent. Default 1 s: half of the message_timeout in our Envoy
	// configurations, and FULL_DUPLEX_STREAMED has no timer in Envoy at all.
	Deadline time.Duration

	// MaxBody is how many bytes of a body are kept for tokenization, per
	// request. A larger body is forwarded all the same. Default 32 MiB, the
	// buffer limit in our Envoy configurations; a million tokens are about 5.
	MaxBody int

	Now func() time.Time // nil is time.Now
}

const (
	defaultDeadline = time.Second
	defaultMaxBody  = 32 << 20

	// modeGrace is how long an Envoy that does not tell its body mode may take
	// to send the body. One that waits for our answer first never sends it, so
	// it then gets an answer that is right in every mode. Half of Envoy's
	// default message_timeout of 200 ms.
	modeGrace = 100 * time.Millisecond

	// maxPooledTokens is the largest token buffer kept for reuse: 1 MiB.
	maxPooledTokens = 1 << 18
)

// Server implements Envoy's ExternalProcessor service. All methods may be
// called at once from many goroutines. The gRPC server around it needs a
// receive limit above Envoy's buffer limit: a buffered body is one message.
type Server struct {
	cfg     Config
	metrics *metrics
	tokens  sync.Pool // of *[]uint32
}

var _ extprocv3.ExternalProcessorServer = (*Server)(nil)

// NewServer returns a Server; it starts nothing.
func NewServer(cfg Config) *Server {
	if cfg.Picker == nil {
		panic("extproc: no picker")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Meter == nil {
		cfg.Meter = noop.Meter{}
	}
	if cfg.Deadline <= 0 {
		cfg.Deadline = defaultDeadline
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{cfg: cfg, metrics: newMetrics(cfg.Meter, cfg.Logger)}
	s.tokens.New = func() any { return new([]uint32) }
	return s
}

// Process holds one conversation with Envoy. It returns nil as soon as nothing
// is left to say: Envoy then keeps no stream for the life of the response
// (seen on 1.40 in every body mode), and never while a duplex body still has
// to pass through, which would lose it.
func (s *Server) Process(conn extprocv3.ExternalProcessor_ProcessServer) (err error) {
	x := &exchange{s: s, conn: conn}
	x.st.debug, x.st.maxBody = s.cfg.DebugHeaders, s.cfg.MaxBody
	s.metrics.streams.Add(1)
	defer func() {
		if fault := recover(); fault != nil {
			s.panicked(fault, &x.st.req)
			err = status.Error(codes.Internal, "extproc: panic")
		}
		x.close(err)
		s.metrics.streams.Add(-1)
	}()
	for {
		msg, err := conn.Recv()
		if err != nil {
			return x.lost(err)
		}
		if finished, err := x.handle(msg); finished || err != nil {
			return err
		}
	}
}

// panicked counts and logs a defect that one stream survived or died of.
func (s *Server) panicked(fault any, req *request) {
	s.metrics.panics.Add(1)
	s.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "panic in a stream",
		slog.String("request_id", string(req.id)), slog.Any("panic", fault), slog.String("stack", string(debug.Stack())))
}

// exchange drives the state machine of one stream: it receives, tokenizes,
// picks, sends, and watches the clock.
type exchange struct {
	s    *Server
	conn grpc.BidiStreamingServer[extprocv3.ProcessingRequest, extprocv3.ProcessingResponse]

	// mu guards what follows and every Send. It is not held while the stream
	// waits for a message or for tokens, so that the deadline can answer.
	mu      sync.Mutex
	st      stream
	pickReq scheduler.Request
	outcome outcome
	abandon context.CancelFunc // tells the tokenizer that nobody waits for it; nil before there is a prompt
	closed  bool
	sendErr error       // what a Send of the timer returned
	timer   *time.Timer // nil until first needed
	due     time.Time   // when the timer means something; zero when nothing is owed
}

// handle takes one message through to its answers. finished says that the
// stream can end.
func (x *exchange) handle(msg *extprocv3.ProcessingRequest) (finished bool, err error) {
	begin := x.s.cfg.Now()
	prompt, err := x.receive(msg, begin)
	if err != nil {
		return false, err
	}
	if prompt.cancel != nil {
		defer prompt.cancel()
	}
	tokens, reason := x.tokenize(prompt)
	defer x.s.release(tokens)
	return x.conclude(tokens, reason, begin)
}

// prompt is what there is to tokenize after a message.
type prompt struct {
	model string
	body  tokenize.Prompt // Kind is zero when there is nothing to tokenize

	// ctx ends when nobody waits for the tokens any more. Both are nil when
	// there is nothing to tokenize.
	ctx    context.Context
	cancel context.CancelFunc
}

// receive steps the state machine and sends what is owed at once.
func (x *exchange) receive(msg *extprocv3.ProcessingRequest, now time.Time) (p prompt, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sendErr != nil {
		return p, x.sendErr
	}
	replies, err := x.st.step(msg)
	if err != nil {
		return p, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := x.send(replies); err != nil {
		return p, err
	}
	x.arm()
	if x.st.phase != deciding {
		return p, nil
	}
	x.s.metrics.parsed(x.conn.Context(), x.s.cfg.Now().Sub(now))
	if req := &x.st.req; req.untokenized == "" && !req.bodyless {
		p.model, p.body = req.model, tokenize.Prompt{Kind: req.kind, Body: x.st.body()}
		p.ctx, p.cancel = context.WithCancel(x.conn.Context())
		x.abandon = p.cancel
	}
	return p, nil
}

// tokenize makes the tokens of p, or says why it cannot. No lock is held and
// nothing of the stream is touched.
func (x *exchange) tokenize(p prompt) (tokens *[]uint32, reason string) {
	if p.body.Kind == 0 {
		return nil, ""
	}
	s := x.s
	if s.cfg.Tokenizer == nil {
		return nil, untokenizedNoTokenizer
	}
	begin := s.cfg.Now()
	tokens = s.tokens.Get().(*[]uint32)
	defer func() {
		if fault := recover(); fault != nil {
			s.panicked(fault, &request{})
			reason = untokenizedPanic
		}
		s.metrics.tokenized(x.conn.Context(), p.model, reason, s.cfg.Now().Sub(begin))
	}()
	ids, err := s.cfg.Tokenizer.Append(p.ctx, (*tokens)[:0], p.model, &p.body)
	if err != nil {
		return tokens, tokenizeReason(err)
	}
	*tokens = ids
	return tokens, ""
}

// tokenizeReason is the label of a tokenization error.
func tokenizeReason(err error) string {
	if failure, ok := errors.AsType[*tokenize.Error](err); ok && failure.Reason != "" {
		return failure.Reason
	}
	return untokenizedError
}

// release gives a token buffer back; the pick that read it has returned.
func (s *Server) release(tokens *[]uint32) {
	if tokens != nil && cap(*tokens) <= maxPooledTokens {
		s.tokens.Put(tokens)
	}
}

// conclude picks and answers when an answer is due, unless the deadline was faster.
func (x *exchange) conclude(tokens *[]uint32, reason string, begin time.Time) (finished bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sendErr != nil {
		return false, x.sendErr
	}
	if x.st.phase == deciding {
		if err := x.conn.Context().Err(); err != nil {
			return false, nil // the client is gone: place nothing for it; Recv tells how
		}
		if reason != "" {
			x.st.req.untokenized = reason
		} else if tokens != nil {
			x.pickReq.Tokens = *tokens
		}
		if err := x.decide(begin); err != nil {
			return false, err
		}
		x.arm()
	}
	return x.st.phase == done, nil
}

// decide picks an endpoint for what is known and sends it. It runs under mu.
func (x *exchange) decide(begin time.Time) error {
	s, req := x.s, &x.st.req
	ctx := x.conn.Context()
	x.pickReq.Model, x.pickReq.Salt = req.model, req.salt
	x.pickReq.Untokenized, x.pickReq.Bodyless = req.untokenized, req.bodyless
	x.pickReq.Subset, x.pickReq.HasSubset = req.subset, req.hasSubset
	x.pickReq.Now = begin
	if req.untokenized != "" {
		x.pickReq.Tokens = nil
		s.metrics.untokenized.add(req.untokenized)
	}
	picking := s.cfg.Now()
	decision, err := s.cfg.Picker.Pick(ctx, &x.pickReq)
	x.pickReq.Tokens = nil // the buffer is about to be reused
	now := s.cfg.Now()
	s.metrics.picked(ctx, now.Sub(picking), now.Sub(begin))
	x.outcome = outcomeRouted
	if err != nil {
		x.outcome = outcomeRejected
	}
	x.log(ctx, &decision, err)
	return x.send(x.st.answer(&decision, err))
}

// log writes the decision for whoever debugs one request.
func (x *exchange) log(ctx context.Context, d *scheduler.Decision, err error) {
	logger := x.s.cfg.Logger
	if err != nil {
		if !logger.Enabled(ctx, slog.LevelInfo) {
			return
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "request turned away",
			slog.String("request_id", string(x.st.req.id)), slog.String("model", x.st.req.model), slog.String("error", err.Error()))
		return
	}
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	logger.LogAttrs(ctx, slog.LevelDebug, "request placed",
		slog.String("request_id", string(x.st.req.id)), slog.String("model", x.st.req.model),
		slog.String("endpoint", d.Endpoint.String()), slog.String("reason", string(d.Reason)),
		slog.Int("matched_tokens", d.Matched), slog.Int("prompt_tokens", d.Prompt),
		slog.String("untokenized", x.st.req.untokenized))
}

// send runs under mu.
func (x *exchange) send(replies []*reply) error {
	for _, r := range replies {
		if err := x.conn.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// arm sets the timer when Envoy is owed an answer. Each message starts it
// anew: a slow upload costs nobody anything, since no engine can start before
// the body is complete. It runs under mu.
func (x *exchange) arm() {
	wait := x.s.cfg.Deadline
	switch {
	case x.st.phase == deciding:
		if req := &x.st.req; req.bodyless || req.untokenized != "" {
			x.due = time.Time{} // the answer follows at once
			return
		}
	case x.st.waiting():
		if x.st.mode == modeUnknown {
			wait = min(wait, modeGrace)
		}
	default:
		x.due = time.Time{}
		if x.timer != nil {
			x.timer.Stop()
		}
		return
	}
	x.due = time.Now().Add(wait)
	if x.timer == nil {
		x.timer = time.AfterFunc(wait, x.expire)
	} else {
		x.timer.Reset(wait)
	}
}

// expire sends a pick on load alone: the request stood still, or its tokens
// take too long. It runs on the timer's goroutine.
func (x *exchange) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.due.IsZero() || time.Now().Before(x.due) {
		return // the answer was faster, or another wait has begun
	}
	x.due = time.Time{}
	defer func() {
		if fault := recover(); fault != nil {
			x.s.panicked(fault, &x.st.req)
			x.sendErr = status.Error(codes.Internal, "extproc: panic")
		}
	}()
	if x.st.phase == receiving && x.st.mode == modeUnknown {
		x.st.giveUp(untokenizedBodyUnseen)
	} else {
		x.s.metrics.deadlines.Add(1)
		if x.abandon != nil {
			x.abandon()
		}
		x.st.giveUp(untokenizedDeadline)
	}
	x.sendErr = x.decide(x.s.cfg.Now())
	x.st.stay()
}

// lost judges how a stream ended that we did not end. Envoy ends it with EOF
// or Canceled, whatever happened; only what was said tells.
func (x *exchange) lost(err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.sendErr != nil:
		return x.sendErr
	case errors.Is(err, io.EOF) || x.conn.Context().Err() != nil:
		return nil
	default:
		return err // such as a message above the receive limit
	}
}

// close stops the timer and counts the request, once.
func (x *exchange) close(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.timer != nil {
		x.timer.Stop()
	}
	result := x.outcome
	switch {
	case result != outcomeNone:
	case err != nil && x.conn.Context().Err() == nil: // else a Send met a client that had left
		result = outcomeFailed
	case x.st.phase == observing:
		result = outcomeObserved
	case x.st.phase == responding && !x.st.headersSeen:
		result = outcomePassed
	default:
		result = outcomeAborted
	}
	x.s.metrics.requests[result].Add(1)
}
