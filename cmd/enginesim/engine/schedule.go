package engine

import "time"

// schedule picks what the next step computes and returns how long that takes.
// Requests that run come before requests that wait; nobody is admitted in a
// step that had to preempt (vLLM v1 scheduler).
func (e *Engine) schedule() time.Duration {
	budget, prefill, decoding := e.cfg.TokenBudget, 0, 0
	plan := func(r *Request, n int) {
		r.scheduled = n
		budget -= n
		if r.computed+n == len(r.Tokens) && n == 1 {
			decoding++
		} else {
			prefill += n
		}
	}

	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		n := min(len(r.Tokens)-r.computed, budget)
		for !e.allocate(r, nil, n) {
			preempted = true
			last := e.running[len(e.running)-1]
			e.preempt(last)
			if last == r {
				n = 0
				break
			}
		}
		if n == 0 {
			break
		}
		plan(r, n)
	}

	for !preempted && len(e.waiting) > 0 && len(e.running) < e.cfg.MaxRunning && budget > 0 {
		r := e.waiting[0]
		hit := e.lookup(r)
		n := min(len(r.Tokens)-len(hit)*e.cfg.BlockSize, budget)
		if !e.fits(r, hit) || !e.allocate(r, hit, n) {
			break
		}
		e.waiting = e.waiting[1:]
		e.running = append(e.running, r)
		if r.cached < 0 {
			r.cached = r.computed
			e.stats.QueriedTokens += uint64(r.prompt)
			e.stats.HitTokens += uint64(r.cached)
			e.stats.PromptTokens += uint64(r.prompt)
		}
		plan(r, n)
	}

	return e.cfg.StepBase + time.Duration(decoding)*e.cfg.StepPerSeq +
		time.Duration(float64(prefill)/e.cfg.PrefillRate*float64(time.Second))
}

// preempt takes a running request's blocks away and puts it at the head of the
// queue; it starts over from what the cache still holds.
func (e *Engine) preempt(r *Request) {
	e.pool.drop(r.blocks)
	r.blocks, r.stored, r.computed = nil, 0, 0
	e.running = e.running[:len(e.running)-1]
	e.waiting = append([]*Request{r}, e.waiting...)
	e.stats.Preemptions++
}

// lookup finds the leading blocks of r that are cached. The last token is
// always computed anew, so that there is something to sample from.
func (e *Engine) lookup(r *Request) []*block {
	e.extendHashes(r)
	var hit []*block
	for _, h := range r.hashes[:(len(r.Tokens)-1)/e.cfg.BlockSize] {
		b := e.pool.find(h)
		if b == nil {
			break
		}
		hit = append(hit, b)
	}
	return hit
}

// fits reports whether all tokens known so far would fit, not only the first
// chunk: a long prompt is not admitted to be preempted half way.
func (e *Engine) fits(r *Request, hit []*block) bool {
	return e.missing(len(r.Tokens), nil, hit) <= e.pool.nfree
}

// missing counts the free-queue blocks needed to hold the first n tokens of a
// request that has the blocks own and has just found hit.
func (e *Engine) missing(n int, own, hit []*block) int {
	need := (n+e.cfg.BlockSize-1)/e.cfg.BlockSize - len(own) - len(hit)
	for _, b := range hit {
		if b.refs == 0 {
			need++
		}
	}
	return need
}

// allocate gives r the blocks for n further tokens after those it has and the
// cached ones in hit, and makes the blocks that will be full findable at once,
// so that equal prompts of one step share them. It reports false, and changes
// nothing, when there are not enough free blocks.
func (e *Engine) allocate(r *Request, hit []*block, n int) bool {
	computed := r.computed + len(hit)*e.cfg.BlockSize
	need := e.missing(computed+n, r.blocks, hit)
	if need > e.pool.nfree {
		return false
	}
	for _, b := range hit {
		e.pool.hold(b)
	}
	r.blocks = append(r.blocks, hit...)
	for len(r.blocks)*e.cfg.BlockSize < computed+n {
		r.blocks = append(r.blocks, e.pool.take())
	}
	r.computed = computed
	r.stored = max(r.stored, len(hit))
	e.store(r, (computed+n)/e.cfg.BlockSize)
	return true
}

// store announces the blocks of r up to full that are not yet in the cache.
func (e *Engine) store(r *Request, full int) {
	if full <= r.stored {
		return
	}
	e.extendHashes(r)
	size, from := e.cfg.BlockSize, r.stored
	ev := Stored{
		Hashes:    r.hashes[from:full:full],
		Tokens:    r.Tokens[from*size : full*size : full*size],
		BlockSize: size,
		Adapter:   r.Adapter,
		ExtraKeys: make([][]string, full-from),
	}
	if from > 0 {
		ev.Parent = &r.hashes[from-1]
	}
	for i := from; i < full; i++ {
		e.pool.store(r.blocks[i], r.hashes[i])
		ev.ExtraKeys[i-from] = shownKeys(r, i*size)
	}
	r.stored = full
	e.pool.events = append(e.pool.events, ev)
}

// extendHashes hashes the blocks of r that have become full.
func (e *Engine) extendHashes(r *Request) {
	size := e.cfg.BlockSize
	for i := len(r.hashes); (i+1)*size <= len(r.Tokens); i++ {
		parent := e.hash.root
		if i > 0 {
			parent = r.hashes[i-1]
		}
		h, err := e.hash.block(parent, r.Tokens[i*size:(i+1)*size], extraKeys(r, i*size, e.cfg.V023))
		if err != nil {
			panic("engine: CBOR of bytes, integers and strings: " + err.Error())
		}
		r.hashes = append(r.hashes, h)
	}
}

// finish applies the results of the step under way.
func (e *Engine) finish(out *Output) {
	live := e.running[:0]
	for _, r := range e.running {
		n := r.scheduled
		r.computed += n
		r.scheduled = 0
		if n == 0 || r.computed < len(r.Tokens) {
			live = append(live, r)
			continue
		}
		i := len(r.Tokens) - r.prompt
		token := r.Output(i)
		r.Tokens = append(r.Tokens, token)
		done := i+1 == r.MaxTokens
		out.Updates = append(out.Updates, Update{
			ID: r.ID, Token: token, Index: i, Done: done, Cached: r.cached, Arrived: r.arrived,
		})
		e.stats.OutputTokens++
		if done {
			e.pool.drop(r.blocks)
			e.stats.Finished++
			continue
		}
		live = append(live, r)
	}
	clear(e.running[len(live):])
	e.running = live
}
