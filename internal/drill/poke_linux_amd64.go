package drill

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// Some faults cannot be made from outside a process: a wall clock that jumps, a bug of our own. They are made inside of it,
// by writing a few instructions into its memory, so that the program under test stays the one that is shipped. The
// kernel lets the parent of a process do that.

// poke writes code at an address of the process and returns what undoes it. The process is stopped meanwhile.
func (x *balancer) poke(at uint64, code []byte) (undo func() error, err error) {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", x.cmd.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("the memory of the balancer cannot be written: %w", err)
	}
	before := make([]byte, len(code))
	if _, err := memory.ReadAt(before, int64(at)); err != nil {
		memory.Close()
		return nil, err
	}
	write := func(code []byte) error {
		x.signal(syscall.SIGSTOP)
		defer x.signal(syscall.SIGCONT)
		if !x.b.until(2*time.Second, x.stopped) {
			return errors.New("the balancer did not stop")
		}
		_, err := memory.WriteAt(code, int64(at))
		return err
	}
	if err := write(code); err != nil {
		memory.Close()
		return nil, err
	}
	return func() error {
		defer memory.Close()
		return write(before)
	}, nil
}

// stopped reports whether the process is stopped, all threads of it.
func (x *balancer) stopped() bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", x.cmd.Process.Pid))
	for _, t := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", x.cmd.Process.Pid, t.Name()))
		_, state, _ := strings.Cut(string(stat), ") ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return err == nil
}

// shiftClock moves the wall clock that the process sees. What it reads then comes from the system call, with the shift
// added for CLOCK_REALTIME; the monotonic clock stays as it is.
func (x *balancer) shiftClock(by time.Duration) (undo func() error, err error) {
	at, room, err := x.clockFunction()
	if err != nil {
		return nil, err
	}
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi (0 = CLOCK_REALTIME)
		0x75, 0x0d, // jne over the next two
		0x48, 0xb9, // mov rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(by/time.Second)))
	code = append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	)
	if room < len(code) {
		return nil, fmt.Errorf("the kernel's own clock function has %d bytes, %d are needed", room, len(code))
	}
	return x.poke(at, code)
}

// clockFunction finds where the process reads clocks: in the vDSO, a library that the kernel gives to every process.
func (x *balancer) clockFunction() (at uint64, room int, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", x.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || !strings.Contains(line, "[vdso]") {
			continue
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", x.cmd.Process.Pid))
		if err != nil {
			return 0, 0, err
		}
		defer memory.Close()
		image := make([]byte, to-from)
		if _, err := io.ReadFull(io.NewSectionReader(memory, int64(from), int64(to-from)), image); err != nil {
			return 0, 0, err
		}
		library, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, 0, err
		}
		symbols, err := library.DynamicSymbols()
		if err != nil {
			return 0, 0, err
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return from + s.Value, int(s.Size), nil
			}
		}
	}
	return 0, 0, errors.New("the balancer has no vDSO with a clock")
}

// plant makes a function of the program panic, by a nil pointer at its start, and returns what mends it. The function must
// not defer anything: the runtime would look for its variables, which it has not made room for yet.
func (x *balancer) plant(function string) (undo func() error, err error) {
	program, err := elf.Open(x.b.program)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	lines, text := program.Section(".gopclntab"), program.Section(".text")
	if lines == nil || text == nil {
		return nil, errors.New("the program has no table of functions")
	}
	data, err := lines.Data()
	if err != nil {
		return nil, err
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, err
	}
	f := table.LookupFunc(function)
	if f == nil {
		return nil, fmt.Errorf("the program has no function %s", function)
	}
	return x.poke(f.Entry, []byte{
		0x31, 0xc0, // xor eax, eax
		0x8b, 0x00, // mov eax, [rax]
	})
}
