package drill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// ownMounts lets a command mount what only it and its children see. Who is not root becomes so in a user namespace of its
// own, where the system allows that.
func ownMounts(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	}
	return nil
}

// clockTicks is sysconf(_SC_CLK_TCK), which is 100 on every platform that Go runs on.
const clockTicks = 100

// processCPU is the CPU time that a process has used so far, in seconds.
func processCPU(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold anything
	field := strings.Fields(rest)
	if len(field) < 13 {
		return 0, errors.New("/proc/PID/stat is short")
	}
	user, err1 := strconv.ParseFloat(field[11], 64)
	system, err2 := strconv.ParseFloat(field[12], 64)
	return (user + system) / clockTicks, errors.Join(err1, err2)
}

// processMemory is the resident memory of a process, in bytes.
func processMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, err
	}
	return resident * float64(os.Getpagesize()), nil
}
