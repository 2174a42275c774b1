package native

import (
	"bytes"
	"os"
	"strconv"
)

// resident is the process's memory in bytes, 0 where the system does not tell.
func resident() int64 {
	stat, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
