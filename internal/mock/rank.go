package mock

import (
	"fmt"
	"strconv"
)

// rankError says that a request names a rank that there is not, in vLLM's words.
type rankError struct{ rank, ranks int }

func (e *rankError) Error() string {
	return fmt.Sprintf("data_parallel_rank %d is out of range [0, %d).", e.rank, e.ranks)
}

// queuedWeight is how many running requests one that waits counts for, as vLLM's own balancer has it.
const queuedWeight = 4

// rank returns the driver that a request's header names. As with vLLM, what is no number is as if it were not there: then the least busy one
// is taken.
func (s *session) rank(header string) (*driver, error) {
	if n, err := strconv.Atoi(header); err == nil {
		if n < 0 || n >= len(s.drivers) {
			return nil, &rankError{n, len(s.drivers)}
		}
		return s.drivers[n], nil
	}
	if len(s.drivers) == 1 {
		return s.drivers[0], nil
	}
	first := int(s.turn.Add(1) % uint64(len(s.drivers)))
	var best *driver
	least := 0
	for i := range s.drivers {
		d := s.drivers[(first+i)%len(s.drivers)]
		l := d.load()
		if busy := queuedWeight*l.Waiting + l.Running; best == nil || busy < least {
			best, least = d, busy
		}
	}
	return best, nil
}
