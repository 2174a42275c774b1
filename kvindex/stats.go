package kvindex

import "unsafe"

// Stats are figures of the whole index.
type Stats struct {
	Blocks     int   // distinct blocks that somebody holds
	HolderSets int   // distinct sets of holders among them
	Bytes      int64 // approximate memory of the index, all endpoints included
}

// EndpointStats are figures of one endpoint since it was attached. Counters
// only grow; Blocks, Unresolved and Waiting are what is there now.
type EndpointStats struct {
	Blocks [numTiers]int // distinct engine hashes with a copy, by Tier

	Batches       uint64
	Stored        uint64  // BlockStored events
	Removed       uint64  // BlockRemoved events
	Cleared       uint64  // AllBlocksCleared events
	UnknownEvents uint64  // events of a kind we do not know
	LastTimestamp float64 // of the last batch, seconds since the Unix epoch by the engine's clock

	// What was not used, and why.
	OtherGroups     uint64 // events of KV cache groups that prove no prefix
	Sparse          uint64 // BlockStored events whose hashes and tokens do not line up
	UnknownParents  uint64 // runs of blocks given up because their parent never came
	UnknownRemovals uint64 // blocks removed that had no copy
	Superseded      uint64 // blocks whose own hash a newer engine hash took
	Dropped         uint64 // blocks not kept because a bound was reached

	Unresolved int // blocks with copies whose own hash is not known
	Waiting    int // runs of blocks waiting for their parent

	Feed FeedStats // of the endpoint's Feed; zero when it has none
}

// Stats returns the figures of the whole index.
func (x *Index) Stats() Stats {
	var s Stats
	s.Blocks, s.Bytes = x.table.stats()
	sets, bytes := x.table.sets.stats()
	s.HolderSets = sets
	s.Bytes += bytes
	for _, ep := range *x.endpoints.Load() {
		if ep == nil {
			continue
		}
		ep.mu.Lock()
		for _, g := range ep.groups {
			s.Bytes += int64(len(g.blocks.slots)) * int64(unsafe.Sizeof(blockSlot{}))
		}
		s.Bytes += int64(ep.waitingTokens)*4 + int64(len(ep.masks))*64
		ep.mu.Unlock()
	}
	return s
}

// EndpointStats returns the figures of e, all zero when e is not attached.
func (x *Index) EndpointStats(e EndpointID) EndpointStats {
	ep := x.endpoint(e)
	if ep == nil {
		return EndpointStats{}
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.stats
}
