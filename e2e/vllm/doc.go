// Package vllm holds our tokens and our predictions against a real vLLM on the
// CPU. `make e2e-vllm` installs it with a tiny model, 5 GB, and runs the tests;
// elsewhere they are skipped.
package vllm
