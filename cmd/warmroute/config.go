package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/scheduler/discover/static"
)

// config is everything an operator can set. The zero value is not useful;
// start from defaultConfig. Units, defaults and reasons stand in keys, from
// which the flags and doc/configuration.md are made.
type config struct {
	ExtProc    extprocConfig    `yaml:"extproc"`
	Health     listenConfig     `yaml:"health"`
	Admin      listenConfig     `yaml:"admin"`
	Endpoints  endpointsConfig  `yaml:"endpoints"`
	Models     []modelConfig    `yaml:"models"`
	Tokenize   tokenizeConfig   `yaml:"tokenize"`
	Scheduling schedulingConfig `yaml:"scheduling"`
	Telemetry  telemetryConfig  `yaml:"telemetry"`
}

type extprocConfig struct {
	Listen       string        `yaml:"listen"`
	Deadline     time.Duration `yaml:"deadline"`
	MaxBodyBytes int           `yaml:"max_body_bytes"`
	DebugHeaders bool          `yaml:"debug_headers"`
}

type listenConfig struct {
	Listen string `yaml:"listen"`
}

type endpointsConfig struct {
	Static         []string      `yaml:"static"`
	ScrapeInterval time.Duration `yaml:"scrape_interval"`
	EventsPort     int           `yaml:"events_port"`
	ReplayPort     int           `yaml:"replay_port"`
}

type modelConfig struct {
	Name           string         `yaml:"name"`
	Aliases        []string       `yaml:"aliases"`
	Tokenizer      string         `yaml:"tokenizer"`
	ChatTemplate   string         `yaml:"chat_template"`
	TemplateKwargs map[string]any `yaml:"template_kwargs"`
	ContentFormat  string         `yaml:"content_format"`
	TrustTemplates bool           `yaml:"trust_request_template"`
}

type tokenizeConfig struct {
	CacheBytes int `yaml:"cache_bytes"`
}

type schedulingConfig struct {
	PrefillSpeed   float64       `yaml:"prefill_speed"`
	UncachedWeight float64       `yaml:"uncached_weight"`
	OutputTokens   int           `yaml:"output_tokens"`
	DecodeStep     time.Duration `yaml:"decode_step"`
	HoldTime       time.Duration `yaml:"hold_time"`
	UnknownPrompt  int           `yaml:"unknown_prompt"`
	LoadStale      time.Duration `yaml:"load_stale"`
}

func (c schedulingConfig) scheduler() scheduler.Config {
	return scheduler.Config{
		PrefillSpeed:   c.PrefillSpeed,
		UncachedWeight: c.UncachedWeight,
		OutputTokens:   c.OutputTokens,
		DecodeStep:     c.DecodeStep.Seconds(),
		HoldTime:       c.HoldTime.Seconds(),
		UnknownPrompt:  c.UnknownPrompt,
		LoadStale:      c.LoadStale,
	}
}

type telemetryConfig struct {
	LogLevel string `yaml:"log_level"`
}

// defaultConfig is what an empty file means.
func defaultConfig() config {
	return config{
		ExtProc:   extprocConfig{Listen: ":9002", Deadline: time.Second, MaxBodyBytes: 32 << 20},
		Health:    listenConfig{Listen: ":9003"},
		Admin:     listenConfig{Listen: "127.0.0.1:9090"},
		Endpoints: endpointsConfig{ScrapeInterval: 200 * time.Millisecond, EventsPort: 5557, ReplayPort: 5558},
		Tokenize:  tokenizeConfig{CacheBytes: 64 << 20},
		Scheduling: schedulingConfig{
			PrefillSpeed: 8000, UncachedWeight: 4, OutputTokens: 256, DecodeStep: 350 * time.Microsecond,
			HoldTime: 10 * time.Second, UnknownPrompt: 1024, LoadStale: 2 * time.Second,
		},
		Telemetry: telemetryConfig{LogLevel: "info"},
	}
}

// key documents one setting. value points into a config.
type key struct {
	path  string // section.name in the file
	flag  string // command-line name, empty when only the file has it
	value any
	unit  string
	doc   string // meaning and the reason for the default
}

// keys lists every setting of c but those inside the models list, in the
// order of the file.
func (c *config) keys() []key {
	return []key{
		{
			"extproc.listen", "extproc-listen", &c.ExtProc.Listen, "address",
			"where Envoy reaches the external processor, gRPC without TLS; 9002 is the port of the Endpoint Picker Protocol's examples",
		},
		{
			"extproc.deadline", "", &c.ExtProc.Deadline, "duration",
			"how long Envoy waits for an answer it is owed; then the pick is made on load alone. Keep it below Envoy's message_timeout, which is 2s in our configurations and 200ms when a gateway does not set it",
		},
		{
			"extproc.max_body_bytes", "", &c.ExtProc.MaxBodyBytes, "bytes",
			"longest body read for its prompt; a longer one is placed by load and forwarded untouched. A million tokens of English are about 5 MB; 32 MiB is the buffer limit of our Envoy configurations",
		},
		{
			"extproc.debug_headers", "debug-headers", &c.ExtProc.DebugHeaders, "",
			"adds x-warmroute-decision to the request an engine receives; off because engines' logs may leave the cluster",
		},
		{
			"health.listen", "health-listen", &c.Health.Listen, "address",
			"gRPC health service; a port of its own so that probes work when the processor is saturated",
		},
		{
			"admin.listen", "admin-listen", &c.Admin.Listen, "address",
			"HTTP for /metrics, /healthz, /readyz and the admin service; loopback unless told otherwise, because it tells who serves what",
		},
		{
			"endpoints.static", "endpoints", &c.Endpoints.Static, "list of host:port",
			"the engines' HTTP addresses",
		},
		{
			"endpoints.scrape_interval", "", &c.Endpoints.ScrapeInterval, "duration",
			"pause between two reads of an engine's /metrics; own picks bridge it, so it need not be short",
		},
		{
			"endpoints.events_port", "", &c.Endpoints.EventsPort, "port",
			"where an engine that does not announce its KV event sources publishes them (vLLM's default is 5557); 0 means nowhere",
		},
		{
			"endpoints.replay_port", "", &c.Endpoints.ReplayPort, "port",
			"where such an engine replays them (5558 in vLLM's documentation); 0 means nowhere",
		},
		{
			"tokenize.cache_bytes", "", &c.Tokenize.CacheBytes, "bytes",
			"memory for tokens of prompts already seen, so that of a conversation only what is new is encoded; 0 keeps none. A token takes about nine bytes: 64 MiB hold seven million, a thousand conversations of 7,000 tokens",
		},
		{
			"scheduling.prefill_speed", "prefill-speed", &c.Scheduling.PrefillSpeed, "tokens/s",
			"what one engine computes of a prompt; load reports correct our account of it, and a value wrong by a factor of three still made the time to first token 16 to 24 % longer in simulation. 8000 is an 8 B model on one current GPU",
		},
		{
			"scheduling.uncached_weight", "", &c.Scheduling.UncachedWeight, "",
			"how many times a prompt token to compute counts against a token already queued; of 1, 2 and 4 the last had the best time to first token, and an end-to-end time within 5 % of the best",
		},
		{
			"scheduling.output_tokens", "", &c.Scheduling.OutputTokens, "tokens",
			"answer length expected of a request; its true length is never known. About the mean of chat traffic",
		},
		{
			"scheduling.decode_step", "", &c.Scheduling.DecodeStep, "duration",
			"how much one more running request lengthens a decode step",
		},
		{
			"scheduling.hold_time", "", &c.Scheduling.HoldTime, "duration",
			"how long an engine keeps the KV blocks of one request; an engine that is full is expected to free all of them once in that time",
		},
		{
			"scheduling.unknown_prompt", "", &c.Scheduling.UnknownPrompt, "tokens",
			"uncached prompt tokens assumed where the true number is not known: a request without tokens, and each request an engine reports as waiting",
		},
		{
			"scheduling.load_stale", "", &c.Scheduling.LoadStale, "duration",
			"age from which a load report is no longer believed; ten missed reads",
		},
		{
			"telemetry.log_level", "log-level", &c.Telemetry.LogLevel, "debug, info, warn, error",
			"least level logged to standard error",
		},
	}
}

// modelKeys documents the fields of one entry of the models list.
func modelKeys() []key {
	m := modelConfig{}
	return []key{
		{"models[].name", "", &m.Name, "", "model name as clients and engines write it; required"},
		{"models[].aliases", "", &m.Aliases, "list", "further names of the same model (vLLM's --served-model-name takes several)"},
		{"models[].tokenizer", "", &m.Tokenizer, "directory", "tokenizer.json, tokenizer_config.json and chat_template.jinja, as the engine was started with; required"},
		{"models[].chat_template", "", &m.ChatTemplate, "file", "template that replaces the directory's, when the engine was started with --chat-template"},
		{"models[].template_kwargs", "", &m.TemplateKwargs, "mapping", "template variables the engine was started with (--default-chat-template-kwargs)"},
		{"models[].content_format", "", &m.ContentFormat, "auto, string, openai", "the engine's --chat-template-content-format; auto when empty, as in the engine"},
		{"models[].trust_request_template", "", &m.TrustTemplates, "", "whether the engine renders a template that a request brings (--trust-request-chat-template); without it such requests are placed by load"},
	}
}

// load reads the configuration file at path over c. Relative paths in it are
// taken from its folder.
func (c *config) load(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if err := c.decode(data); err != nil {
		return fmt.Errorf("config: %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	for i := range c.Models {
		m := &c.Models[i]
		m.Tokenizer = within(dir, m.Tokenizer)
		m.ChatTemplate = within(dir, m.ChatTemplate)
	}
	return nil
}

// decode reads the settings in data over c.
func (c *config) decode(data []byte) error {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return err
	}
	// The library sets c to zero for a file without settings, and ignores all
	// documents but the first.
	documents := 0
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			documents++
		}
	}
	switch documents {
	case 0:
		return nil
	case 1:
		return explain(yaml.UnmarshalWithOptions(data, c, yaml.Strict()))
	default:
		return fmt.Errorf("%d documents where one is read; join them and take out the lines ---", documents)
	}
}

func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// explain adds the nearest known name to an unknown-field error, and the form
// of a duration where a bare number stands for one.
func explain(err error) error {
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) && mistyped.DstType == reflect.TypeFor[time.Duration]() && mistyped.Token != nil {
		return fmt.Errorf("line %d: %q is not a duration; write its unit, such as 200ms or 5s", mistyped.Token.Position.Line, mistyped.Token.Value)
	}
	var unknown *yaml.UnknownFieldError
	if !errors.As(err, &unknown) || unknown.Token == nil {
		return err
	}
	name := unknown.Token.Value
	line := unknown.Token.Position.Line
	if best := nearest(name, knownNames()); best != "" {
		return fmt.Errorf("line %d: unknown field %q; did you mean %q?", line, name, best)
	}
	return fmt.Errorf("line %d: unknown field %q; doc/configuration.md lists the known ones", line, name)
}

// knownNames returns every section and field name a file may hold.
func knownNames() []string {
	var c config
	var names []string
	for _, k := range slices.Concat(c.keys(), modelKeys()) {
		for name := range strings.SplitSeq(k.path, ".") {
			names = append(names, strings.TrimSuffix(name, "[]"))
		}
	}
	return names
}

// nearest returns the candidate with the fewest edits to name, or "" when none
// is within half of its length.
func nearest(name string, candidates []string) string {
	best, least := "", len(name)/2+1
	for _, c := range candidates {
		if d := edits(name, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// validate reports the first setting that cannot work and what to do about it.
func (c *config) validate() error {
	for _, l := range []struct{ path, addr string }{
		{"extproc.listen", c.ExtProc.Listen},
		{"health.listen", c.Health.Listen},
		{"admin.listen", c.Admin.Listen},
	} {
		_, digits, err := net.SplitHostPort(l.addr)
		if err == nil {
			_, err = strconv.ParseUint(digits, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("config: %s: %q is not host:port or :port", l.path, l.addr)
		}
	}
	for _, p := range []struct {
		path string
		ok   bool
		want string
	}{
		{"extproc.deadline", c.ExtProc.Deadline > 0, "a positive duration such as 1s"},
		{"extproc.max_body_bytes", c.ExtProc.MaxBodyBytes > 0 && c.ExtProc.MaxBodyBytes <= mostBody, "from 1 to 1073741824 bytes"},
		{"endpoints.scrape_interval", c.Endpoints.ScrapeInterval >= 10*time.Millisecond, "at least 10ms"},
		{"endpoints.events_port", port(c.Endpoints.EventsPort), "a port, or 0 for none"},
		{"endpoints.replay_port", port(c.Endpoints.ReplayPort), "a port, or 0 for none"},
		{"tokenize.cache_bytes", c.Tokenize.CacheBytes >= 0, "a number of bytes, or 0 for none"},
		{"scheduling.prefill_speed", c.Scheduling.PrefillSpeed > 0, "a positive number"},
		{"scheduling.uncached_weight", c.Scheduling.UncachedWeight > 0, "a positive number"},
		{"scheduling.output_tokens", c.Scheduling.OutputTokens > 0, "a positive number"},
		{"scheduling.decode_step", c.Scheduling.DecodeStep > 0, "a positive duration such as 350us"},
		{"scheduling.hold_time", c.Scheduling.HoldTime > 0, "a positive duration such as 10s"},
		{"scheduling.unknown_prompt", c.Scheduling.UnknownPrompt > 0, "a positive number"},
		{"scheduling.load_stale", c.Scheduling.LoadStale > c.Endpoints.ScrapeInterval, "longer than endpoints.scrape_interval"},
	} {
		if !p.ok {
			return fmt.Errorf("config: %s must be %s", p.path, p.want)
		}
	}
	if err := c.Scheduling.scheduler().Validate(); err != nil {
		return fmt.Errorf("config: scheduling: %w", err)
	}
	if err := new(slog.Level).UnmarshalText([]byte(c.Telemetry.LogLevel)); err != nil {
		return fmt.Errorf("config: telemetry.log_level must be debug, info, warn or error, not %q", c.Telemetry.LogLevel)
	}
	if _, err := static.Parse(context.Background(), unasked{}, c.Endpoints.Static...); err != nil {
		return fmt.Errorf("config: endpoints.static: %w", err)
	}
	return c.validateModels()
}

// mostBody bounds max_body_bytes. A buffered body is one gRPC message, and
// twice that size has to fit into its length.
const mostBody = 1 << 30

// unasked stands in for DNS where only the form of an address matters.
type unasked struct{}

func (unasked) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

func port(p int) bool { return p >= 0 && p <= 65535 }

// validateModels checks that every name is given once and has a tokenizer.
func (c *config) validateModels() error {
	seen := make(map[string]bool)
	for i, m := range c.Models {
		if m.Name == "" {
			return fmt.Errorf("config: models[%d] has no name", i)
		}
		if formats := []string{"", "auto", "string", "openai"}; !slices.Contains(formats, m.ContentFormat) {
			return fmt.Errorf("config: model %q: content_format must be auto, string or openai, not %q", m.Name, m.ContentFormat)
		}
		if m.Tokenizer == "" {
			return fmt.Errorf("config: model %q has no tokenizer; give the directory that holds its tokenizer.json", m.Name)
		}
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			if seen[name] {
				return fmt.Errorf("config: the model name %q is given twice", name)
			}
			seen[name] = true
		}
	}
	return nil
}
