package kvindex

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"
)

// mirror follows a capture naively: a generic MessagePack decoder, reference
// counts by the engine's own hashes, and the text of namespace and tokens for
// what a hash stands for. It shares no code with the index.
type mirror struct {
	copies  map[mirrorKey]int    // by tier and engine hash
	content map[uint64]string    // engine hash → namespace and all tokens up to the block's end
	newest  map[string]uint64    // content → the last engine hash stored for it
	parents map[uint64]mirrorRun // engine hash → what its children continue
	offload bool                 // a tier beside the GPU was announced
}

type mirrorKey struct {
	tier string
	hash uint64
}

type mirrorRun struct {
	ns     string
	tokens []uint32
}

func newMirror() *mirror {
	return &mirror{
		copies: make(map[mirrorKey]int), content: make(map[uint64]string),
		newest: make(map[string]uint64), parents: make(map[uint64]mirrorRun),
	}
}

func mirrorHash(v any) uint64 {
	switch v := v.(type) {
	case int64:
		return uint64(v)
	case uint64:
		return v
	case []byte:
		return binary.BigEndian.Uint64(v[len(v)-8:])
	default:
		panic(fmt.Sprintf("hash is a %T", v))
	}
}

func mirrorInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case uint64:
		return int64(v)
	default:
		return 0
	}
}

func (m *mirror) apply(t *testing.T, payload []byte) {
	t.Helper()
	v, _, err := msgp.ReadIntfBytes(payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range v.([]any)[1].([]any) {
		f, ok := item.(map[string]any)
		if !ok {
			names := map[string][]string{
				"BlockStored":  {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys"},
				"BlockRemoved": {"type", "block_hashes", "medium"},
			}
			list := item.([]any)
			f = map[string]any{"type": list[0]}
			for i, name := range names[list[0].(string)] {
				f[name] = list[i]
			}
		}
		m.event(f)
	}
}

func (m *mirror) event(f map[string]any) {
	medium, _ := f["medium"].(string)
	switch f["type"] {
	case "AllBlocksCleared":
		for k := range m.copies {
			if k.tier == "GPU" {
				delete(m.copies, k)
			}
		}
	case "BlockRemoved":
		for _, h := range f["block_hashes"].([]any) {
			k := mirrorKey{medium, mirrorHash(h)}
			if m.copies[k]--; m.copies[k] <= 0 {
				delete(m.copies, k)
			}
		}
	case "BlockStored":
		run := mirrorRun{}
		size := int(mirrorInt(f["block_size"]))
		if f["parent_block_hash"] == nil {
			run.ns, _ = f["lora_name"].(string)
			run.ns += "|"
			if extras, ok := f["extra_keys"].([]any); ok && extras[0] != nil {
				for _, k := range extras[0].([]any) {
					if k != f["lora_name"] {
						run.ns += k.(string)
					}
				}
			}
			run.ns += "|" + strconv.Itoa(size)
		} else {
			run = m.parents[mirrorHash(f["parent_block_hash"])]
		}
		run.tokens = slices.Clone(run.tokens)
		for i, h := range f["block_hashes"].([]any) {
			hash := mirrorHash(h)
			for _, tok := range f["token_ids"].([]any)[i*size : (i+1)*size] {
				run.tokens = append(run.tokens, uint32(mirrorInt(tok)))
			}
			if medium == "GPU" {
				m.copies[mirrorKey{medium, hash}]++
				m.content[hash] = fmt.Sprint(run.ns, run.tokens)
				m.newest[m.content[hash]] = hash
				m.parents[hash] = mirrorRun{run.ns, slices.Clone(run.tokens)}
			} else {
				m.offload = true
				m.copies[mirrorKey{medium, hash}] = 1
			}
		}
	}
}

// resident is what the engine holds, by tier and engine hash.
func (m *mirror) resident() map[mirrorKey]bool {
	set := make(map[mirrorKey]bool)
	for k := range m.copies {
		set[k] = true
	}
	return set
}

// depth is how many leading blocks of a prompt the engine holds.
func (m *mirror) depth(ns string, tokens []uint32, size int) int {
	tier, d := "GPU", 0
	for (d+1)*size <= len(tokens) {
		hash, ok := m.newest[fmt.Sprint(ns, tokens[:(d+1)*size])]
		if ok && m.copies[mirrorKey{tier, hash}] > 0 {
			d++
			continue
		}
		if tier == "CPU" {
			break
		}
		tier = "CPU"
	}
	return d
}

func residentInIndex(x *Index, e EndpointID) map[mirrorKey]bool {
	set := make(map[mirrorKey]bool)
	for _, g := range x.endpoint(e).groups {
		for hash, b := range g.blocks.all() {
			for t, name := range map[Tier]string{TierGPU: "GPU", TierCPU: "CPU", TierOther: "other"} {
				if b.in(t) {
					set[mirrorKey{name, hash}] = true
				}
			}
		}
	}
	return set
}

// staleWindows are the requests that came after the engine had lost what the
// index believes and before it said so: AllBlocksCleared waits for the next
// scheduler step, a restarted engine says nothing until its first block, the
// reset of an offload tier is never told, and of an adapter loaded again from
// elsewhere only the first block under its new hash tells.
var staleWindows = map[string]bool{
	"reset-delayed: 128 tokens again":                                         true,
	"restart: after the restart: miss, same engine hashes (PYTHONHASHSEED=0)": true,
	"two-tier-self: after the external reset":                                 true,
	"v0.23-arrays: after the reset":                                           true,
	"lora-reload: adapter-b, other path: same name":                           true,
}

// follower is one engine rank: its index endpoint, its feed, its mirror.
type follower struct {
	e      EndpointID
	feed   *Feed
	mirror *mirror
}

// run follows a capture.
type run struct {
	name      string
	x         *Index
	followers map[int]*follower // by rank
	requests  int
	restarts  bool // tell the feed of the lost connection, as a socket would
}

func (r *run) follower(rank int) *follower {
	fo := r.followers[rank]
	if fo == nil {
		e := EndpointID(len(r.followers))
		r.x.Attach(e, "tiny")
		fo = &follower{e: e, feed: NewFeed(r.x, e), mirror: newMirror()}
		fo.feed.Connected()
		fo.pump()
		r.followers[rank] = fo
	}
	return fo
}

// pump answers every wish for a replay with an empty one.
func (fo *follower) pump() {
	for range 10 {
		if _, ok := fo.feed.NextReplay(); !ok {
			return
		}
		fo.feed.ReplayEnd()
	}
}

func (r *run) frame(t *testing.T, l line) {
	t.Helper()
	seq, payload := binary.BigEndian.Uint64(unhex(t, l.Frame[1])), unhex(t, l.Frame[2])
	fo := r.follower(frameRank(t, l))
	if seq == 0 && fo.feed.Stats().Next > 0 {
		*fo.mirror = *newMirror() // a restarted engine is empty
	}
	fo.feed.Live(seq, payload)
	fo.pump()
	fo.mirror.apply(t, payload)
	if s := fo.feed.Stats(); s.Next != seq+1 || !s.Synced {
		t.Fatalf("after frame %d the feed expects %d, synced: %t", seq, s.Next, s.Synced)
	}
	if diff := cmp.Diff(residentInIndex(r.x, fo.e), fo.mirror.resident()); diff != "" {
		t.Fatalf("resident after frame %d (-index +mirror):\n%s", seq, diff)
	}
	if s := r.x.EndpointStats(fo.e); s.Unresolved != 0 || s.Waiting != 0 || s.UnknownRemovals != 0 || s.Sparse != 0 {
		if r.name != "lora-reload" || s.Waiting != 0 { // where superseded blocks are no longer resolved
			t.Fatalf("after frame %d not all is understood: %+v", seq, s)
		}
	}
	checkInvariants(t, r.x)
}

func frameRank(t *testing.T, l line) int {
	t.Helper()
	b, err := DecodeBatch(unhex(t, l.Frame[2]))
	if err != nil {
		t.Fatal(err)
	}
	return max(b.Rank, 0)
}

// request compares what the index predicts, before the frames of the request,
// with what the engine reported.
func (r *run) request(t *testing.T, l line, rank, size int) {
	t.Helper()
	if l.Status != 200 || l.Concurrent || l.Body.PromptLogprobs > 0 {
		return // refused; racing with its twins; does not read the cache
	}
	r.requests++
	reported := 0
	if l.CachedTokens != nil {
		reported = *l.CachedTokens // 0.23.0 says null for none
	}
	ns := Namespace{Model: "tiny", Salt: l.Body.Salt}
	if l.Body.Model == "adapter-a" || l.Body.Model == "adapter-b" {
		ns.Adapter = l.Body.Model
	}
	depth := make([]int, len(r.followers))
	r.x.Match(AppendHashes(nil, ns.Root(size), l.PromptTokens, size), depth)
	var predicted []int
	for k, fo := range r.followers {
		if rank >= 0 && k != rank {
			continue
		}
		if want := fo.mirror.depth(fmt.Sprintf("%s|%s|%d", ns.Adapter, ns.Salt, size), l.PromptTokens, size); depth[fo.e] != want {
			t.Errorf("%s: the index has %d blocks, the mirror %d", l.Note, depth[fo.e], want)
		}
		d := depth[fo.e]
		if r.x.EndpointStats(fo.e).Blocks[TierCPU] == 0 {
			d = min(d, (len(l.PromptTokens)-1)/size) // the last token is computed, unless an offload tier has it
		}
		predicted = append(predicted, d*size)
	}
	if predicted == nil {
		predicted = []int{0}
	}
	right := slices.Contains(predicted, reported)
	if stale := staleWindows[r.name+": "+l.Note] && !r.restarts; right == stale {
		t.Errorf("%s: predicted %v cached tokens of %d, the engine had %d; in a stale window: %t", l.Note, predicted, len(l.PromptTokens), reported, stale)
	}
}

func (r *run) follow(t *testing.T, lines []line) {
	t.Helper()
	size := 32
	for i, l := range lines {
		switch l.Kind {
		case "frame":
			r.frame(t, l)
		case "request":
			rank := -1
			if h, ok := l.Headers["X-data-parallel-rank"]; ok {
				rank, _ = strconv.Atoi(h)
			} else if i+1 < len(lines) && lines[i+1].Kind == "frame" {
				rank = frameRank(t, lines[i+1])
			}
			r.request(t, l, rank, size)
		case "replay":
			r.replay(t, l)
		case "control":
			if r.restarts && l.Note == "engine process restarted here (empty cache, sequence starts at 0)" {
				for _, fo := range r.followers {
					fo.feed.Lost(nil)
					fo.feed.Connected()
					fo.pump()
					*fo.mirror = *newMirror()
				}
			}
		}
	}
}

// replayFrames are the sequence numbers and payloads of a replay's replies, of
// either layout, without the end marker.
func replayFrames(t *testing.T, l line) (frames []frame) {
	t.Helper()
	for _, reply := range l.Replies {
		seq, payload := reply[len(reply)-2], reply[len(reply)-1]
		if payload == "" {
			continue
		}
		frames = append(frames, frame{binary.BigEndian.Uint64(unhex(t, seq)), unhex(t, payload)})
	}
	return frames
}

// replay gives a feed of its own nothing but the replay, and the one that
// followed live a second look at frames it has: both agree with the mirror.
func (r *run) replay(t *testing.T, l line) {
	t.Helper()
	frames := replayFrames(t, l)
	if len(frames) == 0 || l.Start != 0 || l.Socket != "DEALER" {
		return
	}
	b, err := DecodeBatch(frames[0].payload)
	if err != nil {
		t.Fatal(err)
	}
	fo := r.follower(max(b.Rank, 0))
	x := New()
	x.Attach(0, "tiny")
	fresh := NewFeed(x, 0)
	fresh.Connected()
	fo.feed.Lost(nil)
	fo.feed.Connected()
	for _, f := range []*Feed{fresh, fo.feed} {
		if from, ok := f.NextReplay(); from != 0 || !ok {
			t.Fatalf("a feed just connected asks for a replay from %d, %t; want 0", from, ok)
		}
		for _, fr := range frames {
			f.ReplayFrame(fr.seq, fr.payload)
		}
		f.ReplayEnd()
		if s := f.Stats(); !s.Synced || s.Restarts != 0 || s.Next != frames[len(frames)-1].seq+1 {
			t.Fatalf("after the replay: %+v", s)
		}
	}
	if s := fo.feed.Stats(); s.Duplicates != uint64(len(frames)) {
		t.Errorf("%d of %d frames known as duplicates", s.Duplicates, len(frames))
	}
	want := fo.mirror.resident()
	if diff := cmp.Diff(residentInIndex(x, 0), want); diff != "" {
		t.Errorf("resident by replay alone (-index +mirror):\n%s", diff)
	}
	if diff := cmp.Diff(residentInIndex(r.x, fo.e), want); diff != "" {
		t.Errorf("resident after a repeated replay (-index +mirror):\n%s", diff)
	}
}

// TestCaptures follows every capture of a real engine: after each frame the
// resident blocks are those of the mirror, and before each request the cached
// tokens are those that the engine then reported, but for the stale windows.
func TestCaptures(t *testing.T) {
	total := 0
	for _, name := range captureNames(t) {
		if name == "replay" {
			continue // TestReplayCapture
		}
		t.Run(name, func(t *testing.T) {
			r := &run{name: name, x: New(), followers: make(map[int]*follower)}
			r.follow(t, readCapture(t, name))
			total += r.requests
		})
	}
	if total < 130 {
		t.Errorf("%d requests compared, want at least 130", total)
	}
	t.Logf("%d requests compared", total)
}

// TestRestartSeenByTheSocket has no stale window: the connection breaks with
// the engine, and the replay of the next one is empty.
func TestRestartSeenByTheSocket(t *testing.T) {
	r := &run{name: "restart", x: New(), followers: make(map[int]*follower), restarts: true}
	r.follow(t, readCapture(t, "restart"))
	if s := r.follower(0).feed.Stats(); s.Restarts != 1 {
		t.Errorf("%d restarts seen, want 1", s.Restarts)
	}
}

// TestReplayCapture reads the replays of first-shared's engine: into an empty
// index, and into one that followed live.
func TestReplayCapture(t *testing.T) {
	r := &run{name: "first-shared", x: New(), followers: make(map[int]*follower)}
	r.follow(t, readCapture(t, "first-shared"))
	replays := 0
	for _, l := range readCapture(t, "replay") {
		if l.Kind == "replay" {
			r.replay(t, l)
			replays++
		}
	}
	if replays < 3 {
		t.Errorf("%d replays, want at least 3", replays)
	}
}
