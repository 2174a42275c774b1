package stack

import (
	"encoding/json"
	"strings"
)

// address is a log line of the picker that says where it listens.
type address struct {
	Msg     string `json:"msg"`
	Service string `json:"service"`
	Address string `json:"address"`
}

// listens sends every "listening" line of the picker's log to ch, as long as
// ch has room.
func listens(ch chan<- address) func([]byte) {
	return func(line []byte) {
		var a address
		if json.Unmarshal(line, &a) == nil && a.Msg == "listening" {
			select {
			case ch <- a:
			default:
			}
		}
	}
}

// addresses sends the line in which an engine says where it listens to ch, as
// long as ch has room.
func addresses(ch chan<- Engine) func([]byte) {
	return func(line []byte) {
		var e Engine
		if json.Unmarshal(line, &e) == nil && e.HTTP != "" {
			select {
			case ch <- e:
			default:
			}
		}
	}
}

func pickerArgs(endpoints, more []string) []string {
	args := []string{
		"serve",
		"--extproc-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--endpoints", strings.Join(endpoints, ","),
	}
	return append(args, more...)
}
