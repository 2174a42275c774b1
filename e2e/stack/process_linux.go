package stack

import "syscall"

// childAttributes puts a child in its own process group and lets the kernel end
// it when its parent dies without a word. The kernel means the parent's thread;
// the Go runtime keeps a thread that no goroutine has locked.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
