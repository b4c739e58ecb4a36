package mock

import (
	"errors"
	"sync"
	"time"

	"evenkeel/internal/engine"
)

var errQueueFull = errors.New("the queue is full")

// driver runs a timing model in real time: its virtual time is the time since the driver began. What is late is caught up with at the
// times that the model says, so lateness never adds up. Safe for concurrent use.
type driver struct {
	began      time.Time
	queueLimit int           // 0 = none
	nudged     chan struct{} // of one place: the next step may be due at another time
	quit       chan struct{}
	done       chan struct{}

	mu     sync.Mutex
	model  *engine.Engine
	jobs   map[uint64]*job // whose clients wait for more
	lastID uint64
}

// job is a request that the model has, or had. What it tells is guarded by driver.mu.
type job struct {
	id     uint64
	poke   func() // called when out has grown; holds no lock of its own for long
	out    int    // tokens
	cached int    // prompt tokens that the cache held; known with the first token
}

// newDriver starts a driver, which runs until stop.
func newDriver(c engine.Config, queueLimit int) (*driver, error) {
	model, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	d := &driver{
		began: time.Now(), queueLimit: queueLimit, nudged: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		model: model, jobs: map[uint64]*job{},
	}
	go d.run()
	return d, nil
}

// stop ends the driver and waits for that. Nobody may wait for tokens any more.
func (d *driver) stop() {
	close(d.quit)
	<-d.done
}

// run ends each step when it is due.
func (d *driver) run() {
	defer close(d.done)
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		select {
		case <-due.C:
		case <-d.nudged:
		case <-d.quit:
			return
		}
		d.mu.Lock()
		d.catchUp()
		at, busy := d.model.Next()
		d.mu.Unlock()
		due.Stop()
		if busy {
			due.Reset(time.Until(d.began.Add(at)))
		}
	}
}

func (d *driver) nudge() {
	select {
	case d.nudged <- struct{}{}:
	default:
	}
}

// catchUp ends all steps that are due, and returns the time. driver.mu is held.
func (d *driver) catchUp() time.Duration {
	now := time.Since(d.began)
	for {
		at, busy := d.model.Next()
		if !busy || at > now {
			return now
		}
		for _, e := range d.model.Step(at) {
			j := d.jobs[e.ID]
			if j == nil || e.Kind == engine.Preempted {
				continue
			}
			j.out, j.cached = e.Tokens, e.CachedTokens
			j.poke()
		}
	}
}

// submit gives the model a request; its ID is the driver's matter. Whatever comes of it, leave must follow. The error is errQueueFull, or
// says why the model can never serve it; then there is nothing to leave.
func (d *driver) submit(s engine.Sequence, poke func()) (*job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.catchUp()
	if d.queueLimit > 0 && d.model.Load(now).Waiting >= d.queueLimit {
		return nil, errQueueFull
	}
	d.lastID++
	s.ID = d.lastID
	if err := d.model.Submit(now, s); err != nil {
		return nil, err
	}
	j := &job{id: s.ID, poke: poke}
	d.jobs[j.id] = j
	d.nudge()
	return j, nil
}

// leave takes back what is not done of j. The model may need the rest of its running step to notice.
func (d *driver) leave(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.jobs, j.id)
	d.model.Cancel(d.catchUp(), j.id)
	d.nudge()
}

// told returns how many tokens of j are out, and how many of its prompt the cache held.
func (d *driver) told(j *job) (out, cached int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return j.out, j.cached
}

// slow makes every step from the next one on take factor times as long; 1 = as usual.
func (d *driver) slow(factor float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.model.Slow(d.catchUp(), factor)
	d.nudge()
}

// adapters are those that have requests.
func (d *driver) adapters() (running, waiting []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catchUp()
	return d.model.Adapters()
}

func (d *driver) load() engine.Load {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Load(d.catchUp())
}
