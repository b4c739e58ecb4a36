package drill

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

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
