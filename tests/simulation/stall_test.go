package simulation

import (
	"fmt"
	"slices"
	"time"
)

// lateness watches how late the machine wakes who waits, whatever the program does.
type lateness struct {
	quit chan struct{}
	done chan []time.Duration
}

const tick = 5 * time.Millisecond

func watchLateness() *lateness {
	l := &lateness{make(chan struct{}), make(chan []time.Duration, 1)}
	go func() { // ends with stop
		var late []time.Duration
		due := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			due = due.Add(tick)
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
				late = append(late, time.Since(due))
				if late[len(late)-1] > tick { // what was missed counts once
					due = time.Now()
				}
			case <-l.quit:
				l.done <- late
				return
			}
		}
	}()
	return l
}

// late is how late the machine was.
type late struct{ mean, p99, worst time.Duration }

func (l *lateness) stop() late {
	close(l.quit)
	all := <-l.done
	slices.Sort(all)
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return late{sum / time.Duration(len(all)), all[len(all)*99/100], all[len(all)-1]}
}

// stalled says that the machine had no time for those who were due.
func (l late) stalled() bool { return l.mean > time.Millisecond || l.worst > 20*time.Millisecond }

func (l late) String() string {
	return fmt.Sprintf("%v in the mean, %v in the worst hundredth, %v at worst", l.mean.Round(time.Microsecond), l.p99.Round(time.Microsecond), l.worst.Round(time.Microsecond))
}
