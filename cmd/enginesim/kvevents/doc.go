// Package kvevents announces an engine's KV cache as vLLM does: msgpack batches
// with a sequence number over a ZeroMQ PUB socket, and a replay of the last
// batches over a ROUTER socket.
//
// The bytes are those of vLLM 0.32 (Maps) or 0.23 (Arrays); the tests compare
// them with captures of both.
package kvevents
